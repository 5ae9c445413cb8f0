"""When a member counts as behind, under a virtual clock."""

from __future__ import annotations

from scheduler.members.lag import ANSWER_EVERY_S, WARN_AFTER_S, Lag, Lasting


def test_a_member_that_is_behind_is_answered_again_and_again_but_not_each_second():
    lag = Lag()
    lag.sent(0.0)
    answered = []
    for tick in range(1, 13):
        if lag.report("old", "new", float(tick), float(tick)):
            answered.append(tick)
            lag.sent(float(tick))
    assert answered == [2, 4, 6, 8, 10, 12]
    assert answered[1] - answered[0] >= ANSWER_EVERY_S


def test_an_operator_is_warned_after_ten_seconds_and_until_it_has_caught_up():
    lag = Lag()
    for tick in range(int(WARN_AFTER_S)):
        lag.report("old", "new", tick, tick)
        assert not lag.warns(tick)
    lag.report("old", "newer", WARN_AFTER_S, WARN_AFTER_S)
    assert lag.warns(WARN_AFTER_S) and lag.since == 0
    lag.report("newer", "newer", 11, 11)
    assert not lag.warns(11)


def test_a_member_that_follows_with_a_delay_while_plans_change_each_second_is_no_cause_for_a_warning():
    lag = Lag()
    for tick in range(100):
        lag.report(f"plan {tick - 1}", f"plan {tick}", tick, tick)
        assert not lag.warns(tick)


def test_a_report_that_waited_longer_than_the_last_configuration_says_nothing():
    lag = Lag()
    lag.sent(100.0)
    assert not lag.report("old", "new", 60.0, 101.0)
    assert lag.since is None


def test_a_member_that_does_not_report_what_it_holds_is_neither_answered_nor_warned_of():
    lag = Lag()
    for tick in range(100):
        assert not lag.report(None, "new", tick, tick)
    assert lag.since is None


def test_a_member_that_holds_nothing_is_answered():
    assert Lag().report("", "new", 1.0, 1.0)


def test_a_condition_lasts_only_without_a_break_and_is_told_once_in_its_time():
    lasting = Lasting(3.0)
    assert [lasting.holds(tick != 2, float(tick)) for tick in range(10)] == [
        *[False] * 6,
        True,
        *[False] * 2,
        True,
    ]
