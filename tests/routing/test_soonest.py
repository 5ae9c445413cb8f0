"""The device that answers first: found without a look at each, and the same that a look at each finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.batching.latency import LatencyModel
from workers.dispatch.routing.least_completion import Router
from workers.dispatch.routing.outlook import Device
from workers.dispatch.routing.soonest import Soonest

#: one of them was measured slower for two rows than for four
PROFILES = [[(1, 0.1), (4, 0.2)], [(1, 0.05), (2, 0.3), (4, 0.25)], [(1, 0.2), (4, 0.8)]]
APPLICATIONS = ("app", "other")
#: what befalls a device: (what, which device, which application, rows, seconds since the last)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["sent", "sent", "done", "state", "up", "down", "service", "ask", "ask", "ask"]),
        st.integers(0, 99),
        st.sampled_from(APPLICATIONS),
        st.integers(1, 9),
        st.sampled_from([0.0, 0.01, 0.13, 0.5]),
    ),
    max_size=80,
)


def devices(count: int) -> dict[str, Device]:
    made = {f"d{i}": Device() for i in range(count)}
    for i, device in enumerate(made.values()):
        device.up = device.usable = True
        for application in APPLICATIONS:
            device.lane(application).serve(LatencyModel(PROFILES[i % 3]), 4)
    return made


def befalls(device: Device, what: str, application: str, rows: int, now: float) -> None:
    if what == "sent":
        device.sent(application, rows, now)
    elif what == "done":
        device.done(application, rows, now, True, 0.05 * rows, rows)
    elif what == "state":
        device.reported({application: rows + device.lane(application).outstanding}, 0.03 * rows, now)
    elif what == "service":
        device.serve(application, LatencyModel(PROFILES[rows % 3]), rows)
    else:
        device.usable = what == "up"
        if what == "down":
            device.forget_reports()
        device.happened()


def looked_for(known: dict[str, Device], rows: int, now: float, exclude: tuple[str, ...]) -> list[tuple[float, str]]:
    """When each that may be chosen answers, the first first; by a look at each."""
    found = []
    for name, device in known.items():
        if device.usable and name not in exclude:
            at, takes = device.outlook("app", rows)
            found.append((max(at, now + takes), name))
    return sorted(found, key=lambda one: one[0])


def played(count: int, events, check) -> None:
    known, now = devices(count), 0.0
    searches = {least: Soonest("app", least, list(known.items())) for least in (1, 2, 4, 8)}
    for what, number, application, rows, passed in events:
        now += passed
        name = f"d{number % count}"
        if what == "ask":
            exclude = (name,) if number % 2 else ()
            answers = looked_for(known, rows, now, exclude)
            for wait in (0.0, 0.1, 0.4, 1e9):
                found = searches[1 << (rows.bit_length() - 1)].first(now, now + wait, rows, exclude)
                check(found, answers, now + wait)
        else:
            befalls(known[name], what, application, rows, now)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, Soonest.LOOKS), EVENTS)
def test_it_is_the_first_that_a_look_at_each_finds(count, events):
    def check(found, answers, latest):
        if not answers or answers[0][0] > latest:
            assert found is None
        else:
            # To the rounding of sums.
            assert {name: at for at, name in answers}[found] <= answers[0][0] + 1e-9

    played(count, events, check)


@settings(max_examples=80, deadline=None)
@given(st.integers(Soonest.LOOKS + 1, 40), EVENTS)
def test_with_news_of_many_it_is_in_time_if_any_is(count, events):
    def check(found, answers, latest):
        if not answers or answers[0][0] > latest:
            assert found is None
        else:
            assert {name: at for at, name in answers}[found] <= latest

    played(count, events, check)


def test_of_many_the_first_is_found_once_the_news_are_known():
    known = devices(100)
    search = Soonest("app", 1, list(known.items()))
    for i, device in enumerate(known.values()):
        befalls(device, "sent", "app", 200 - 2 * i, 0.0)
    assert search.first(0.0, 0.01, 1, ()) is None
    answers = looked_for(known, 1, 0.0, ())
    for place in range(20):
        exclude = tuple(name for _, name in answers[:place])
        assert search.first(0.0, 1e9, 1, exclude) == answers[place][1]


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.integers(1, 20))
def test_more_rows_are_never_answered_earlier_and_nothing_known_is_forgotten_by_waiting(events, rows):
    known = devices(3)
    now = 0.0
    for what, number, application, amount, passed in events:
        now += passed
        if what != "ask":
            befalls(known[f"d{number % 3}"], what, application, amount, now)
    for device in known.values():
        (at, takes), (later, longer) = device.outlook("app", rows), device.outlook("app", rows + 1)
        assert later >= at - 1e-9 and longer >= takes - 1e-9
        assert takes > 0


def test_one_that_is_closed_hears_nothing_any_more():
    known = devices(3)
    one, two = (Soonest("app", 1, list(known.items())) for _ in range(2))
    one.close()
    assert [len(device.watchers) for device in known.values()] == [1, 1, 1]
    befalls(known["d0"], "sent", "app", 40, 0.0)
    assert two.first(0.0, 1e9, 1, ()) == "d1"


def test_new_plans_leave_nothing_behind_at_the_devices():
    router = Router()
    for version in range(20):
        router.set_routes({"app": [("a", 1.0 + version), ("b", 1.0)]})
        for name in ("a", "b"):
            router.up(name)
            router.state(name, {}, 5.0, False, 0.0)
        for variants in (None, {"a"}, {"b"}, {"a", "b"}):
            assert router.pick("app", 0.0, 0.5, allowed=variants) in ("a", "b")
    watchers = [len(router._devices[name].watchers) for name in ("a", "b")]
    # Those of the last plan: of the pools for any device, for itself, and for both.
    assert watchers == pytest.approx([3, 3])


def test_as_many_sets_of_devices_as_there_may_be_are_not_all_remembered():
    router = Router()
    names = [f"d{i}" for i in range(40)]
    router.set_routes({"app": [(name, 1.0) for name in names]})
    for name in names:
        router.up(name)
        router.state(name, {}, 5.0, False, 0.0)
    for first in range(39):
        assert router.pick("app", 0.0, 0.5, allowed={names[first], names[first + 1]}) in names[first : first + 2]
    assert sum(len(router._devices[name].watchers) for name in names) <= 40


@pytest.mark.parametrize("asks", ["between", "after", "never"])
def test_however_often_a_device_is_busy_and_idle_again_there_is_no_more_to_remember(asks):
    known = {"quick": Device(), "slow": Device()}
    for device, seconds in zip(known.values(), (0.01, 1.0), strict=True):
        device.up = device.usable = True
        device.lane("app").serve(LatencyModel([(1, seconds)]), 1)
    search, most = Soonest("app", 1, list(known.items())), 0
    for step in range(4000):
        now = 0.2 * step
        known["slow"].reported({}, 0.05, now)
        if asks == "between":
            # It works through somebody's queue, and is idle again: from one heap to the other, behind the quick one.
            assert search.first(now, now + 0.5, 1, ()) == "quick"
        if asks != "never":
            assert search.first(now + 0.1, now + 0.6, 1, ()) == "quick"
        most = max(most, len(search._by_moment) + len(search._by_time) + len(search._news))
    assert most < 3000
    assert search.first(1e4, 1e9, 1, ("quick",)) == "slow"


def test_a_query_more_never_makes_a_device_seem_sooner():
    (device,) = devices(1).values()
    device.sent("other", 3, 0.0)
    device.reported({"other": 3}, 1.0, 0.0)
    before = device.outlook("app", 1)
    assert before == pytest.approx((1.1, 0.1 + 1 / 6)), "once the running batch has ended it may be the next"
    device.sent("app", 1, 0.0)
    after = device.outlook("app", 1)
    assert after[0] >= before[0] and after[1] >= before[1]
