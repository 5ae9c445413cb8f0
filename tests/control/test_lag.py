"""When a member counts as behind, under a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.members.lag import ANSWER_EVERY_S, PUSHED_S, SLOW_S, WARN_AFTER_S, Lag, Lasting


def test_a_member_that_is_behind_is_answered_again_and_again_but_not_each_second():
    lag = Lag()
    lag.sent(0.0, 1)
    answered = []
    for tick in range(1, 13):
        if lag.report("old", "new", float(tick), float(tick)):
            answered.append(tick)
            lag.sent(float(tick), tick)
    assert answered == [2, 4, 6, 8, 10, 12]
    assert answered[1] - answered[0] >= ANSWER_EVERY_S


def behind(lag: Lag, ticks: range, received: Callable[[int], int | None]) -> list[int]:
    """Report an old configuration at each tick, and answer where one is due.

    Returns:
        The ticks at which operators are warned of the member.
    """
    warned = []
    for tick in ticks:
        if lag.report("old", "new", tick, tick, received(tick)):
            lag.sent(tick, tick)
        if lag.warns(tick):
            warned.append(tick)
    return warned


@pytest.mark.parametrize("received", [lambda _: None, lambda tick: tick])
def test_an_operator_is_warned_after_ten_seconds_and_until_it_has_caught_up(received):
    lag = Lag()
    assert behind(lag, range(12), received) == [int(WARN_AFTER_S), int(WARN_AFTER_S) + 1]
    lag.report("old", "newer", 12, 12, received(12))
    assert lag.warns(12) and lag.behind_since(12) == 0
    lag.report("newer", "newer", 13, 13, received(13))
    assert not lag.warns(13)


def test_reports_from_before_the_configuration_came_are_no_cause_for_a_warning_or_an_answer():
    """Reports from before the configuration came cause no warning and no answer.

    A crowded box passes messages on late: each report here was made before the one answer came.
    """
    lag = Lag()
    lag.report("old", "new", 0, 0, 1)
    lag.sent(2, 2)
    assert behind(lag, range(3, 3 + int(SLOW_S) - 5), lambda _: 1) == []
    assert not lag.report("new", "new", 60, 60, 2)
    assert not lag.warns(200)


def test_a_member_whose_reports_are_all_that_late_for_a_minute_is_warned_of():
    lag = Lag()
    lag.sent(0, 1)
    warned = behind(lag, range(1, 70), lambda _: 0)
    assert warned[0] == SLOW_S and lag.behind_since(69) == 0
    lag.report("new", "new", 70, 70, 1)
    assert not lag.warns(70)


def test_a_member_that_follows_with_a_delay_while_plans_change_each_second_is_no_cause_for_a_warning():
    lag = Lag()
    for tick in range(100):
        lag.report(f"plan {tick - 1}", f"plan {tick}", tick, tick)
        assert not lag.warns(tick)


def test_a_report_that_waited_longer_than_the_last_configuration_says_nothing():
    lag = Lag()
    lag.sent(100.0, 1)
    assert not lag.report("old", "new", 60.0, 101.0)
    assert lag.since is None


def test_a_member_that_does_not_report_what_it_holds_is_neither_answered_nor_warned_of():
    lag = Lag()
    for tick in range(100):
        assert not lag.report(None, "new", tick, tick)
    assert lag.since is None


def test_a_member_that_holds_nothing_is_answered():
    lag = Lag()
    assert not lag.report("", "new", 1.0, 1.0)
    assert lag.report("", "new", 1.0 + PUSHED_S, 1.0 + PUSHED_S)


def test_a_push_that_is_under_way_is_not_forestalled():
    """A push that is under way is not forestalled by an answer to a report.

    All connections know a plan as soon as it is pushed to the first one. The others' pushes come a moment later.
    """
    lag = Lag()
    for plan in range(1, 100):
        now = 5.0 * plan
        assert not lag.report(f"plan {plan - 1}", f"plan {plan}", now, now)
        lag.sent(now + 0.1, plan)
        assert not lag.report(f"plan {plan}", f"plan {plan}", now + 1.0, now + 1.0)


def test_a_condition_lasts_only_without_a_break_and_is_reported_once_in_its_time():
    lasting = Lasting(3.0)
    assert [lasting.holds(tick != 2, float(tick)) for tick in range(10)] == [
        *[False] * 6,
        True,
        *[False] * 2,
        True,
    ]
