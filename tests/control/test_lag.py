"""When a member counts as behind, under a virtual clock."""

import itertools

import pytest

from scheduler.members.lag import ANSWER_AT_LEAST_EVERY_S, ANSWER_EVERY_S, WARN_AFTER_S, Lag


@pytest.mark.parametrize("held", ["old", ""])
def test_a_member_that_is_behind_is_answered_ever_more_rarely_and_an_operator_warned(held):
    lag, answered, warned = Lag(), [], []
    for tick in range(1, 200):
        if lag.report(held, "new", tick, tick):
            answered.append(tick)
            lag.sent(tick)
        if lag.behind_since(tick) is not None:
            warned.append(tick)
    pauses = [after - before for before, after in itertools.pairwise([1, *answered])]
    assert pauses[0] == ANSWER_EVERY_S and pauses[-1] == ANSWER_AT_LEAST_EVERY_S
    assert all(after == min(2 * before, ANSWER_AT_LEAST_EVERY_S) for before, after in itertools.pairwise(pauses))
    assert warned[0] == WARN_AFTER_S + 1 and lag.behind_since(warned[0]) == 1
    # It took over another one, which is not the last: that is sent as soon as at first.
    assert not lag.report("other", "new", 200, 200)
    assert lag.report("other", "new", 200 + ANSWER_EVERY_S, 200 + ANSWER_EVERY_S)
    lag.report("new", "new", 299, 299)
    assert lag.behind_since(299) is None


def test_a_member_that_follows_with_a_delay_while_plans_change_each_second_is_no_cause_for_a_warning():
    lag = Lag()
    for tick in range(100):
        lag.report(f"plan {tick - 1}", f"plan {tick}", tick, tick)
        assert lag.behind_since(tick) is None


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


def test_a_configuration_that_is_under_way_is_not_repeated():
    """All connections know a plan as soon as it is sent to the first one, and the others' come a moment later."""
    lag = Lag()
    for plan in range(1, 100):
        now = 5.0 * plan
        assert not lag.report(f"plan {plan - 1}", f"plan {plan}", now, now)
        lag.sent(now + 0.1)
        assert not lag.report(f"plan {plan}", f"plan {plan}", now + 1.0, now + 1.0)
