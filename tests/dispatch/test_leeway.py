"""How much of queries' time is left unbooked while devices slip."""

from __future__ import annotations

import pytest

from workers.batching.latency import LatencyModel
from workers.dispatch.binding import QueryClass, Terms
from workers.dispatch.late.binding import Dispatcher
from workers.dispatch.late.margin import EASES, MOST, STEP, Leeway
from workers.dispatch.options import Menu, Option

SLO_S, RUN_S = 1.0, 0.3


def test_nothing_is_kept_free_where_nothing_was_given_up():
    assert Leeway().part(0.0) == Leeway().part(1e9) == 0.0


def test_each_moment_in_which_queries_are_given_up_counts_once():
    leeway = Leeway()
    for _ in range(16):
        leeway.given_up(5.0)
    assert leeway.part(5.0) == STEP
    leeway.given_up(5.5)
    assert leeway.part(5.5) == pytest.approx(2 * STEP - 0.5 * EASES)


def test_it_has_an_end_and_passes():
    leeway = Leeway()
    for moment in range(1000):
        leeway.given_up(moment * 1e-3)
    assert leeway.part(1.0) == pytest.approx(MOST, abs=0.01)
    assert leeway.part(1.0 + MOST / EASES + 1.0) == 0.0
    leeway.given_up(1000.0)
    assert leeway.part(1000.0) == STEP


class Query:
    rows, key, query_class = 1, None, QueryClass("app")

    def __init__(self, now: float, within: float = SLO_S):
        self.arrived, self.deadline, self.booking = now, now + within, None


def dispatcher(run_s: float = RUN_S) -> Dispatcher:
    """One device, batches of one."""
    known = Dispatcher()
    known.configured({"app": Terms(SLO_S)}, 0.0)
    known.offered("device", {QueryClass("app"): Menu([Option(1, 90.0, LatencyModel([(1, run_s)]), 1)])}, 0.0)
    known.device_changed("device", 0.0, up=True)
    return known


def given_up(known: Dispatcher, now: float) -> None:
    """The device is lost with all that is booked on it, and comes back."""
    assert known.lost("device", now).refusals
    known.device_changed("device", now, up=True)


def places(known: Dispatcher, now: float) -> int:
    """Queries that find a place, until one is refused."""
    count = 0
    while not known.arrived([Query(now)], now).refusals:
        count += 1
    return count


def test_after_queries_were_given_up_a_busy_device_is_booked_for_less():
    known = dispatcher()
    now = 0.0
    # Three of 0.3 s end 0.1 s before the SLO.
    assert places(known, now) == 3
    while known._fleet.applications[QueryClass("app")].leeway.part(now) <= 0.1:
        given_up(known, now)
        now += 0.01
        places(known, now)
    given_up(known, now)
    assert places(known, now) == 2


def test_an_idle_device_takes_what_it_can_answer_in_time_all_the_same():
    known = dispatcher(run_s=0.95 * SLO_S)
    application = known._fleet.applications[QueryClass("app")]
    for moment in range(20):
        application.leeway.given_up(moment * 1e-3)
    application.missed(0.02)
    decisions = known.arrived([Query(0.02)], 0.02)
    assert len(decisions.dispatches) == 1 and not decisions.refusals
