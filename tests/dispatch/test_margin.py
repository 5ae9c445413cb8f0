"""How much of queries' time is left unbooked while devices slip."""

from __future__ import annotations

import pytest

from workers.dispatch.binding import QueryClass, ServiceTerms
from workers.dispatch.late.binding import LateBinding
from workers.dispatch.late.margin import DECAY_PER_S, LARGEST, STEP, AdmissionMargin
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption

SLO_S, RUN_S = 1.0, 0.3


def test_nothing_is_kept_free_where_nothing_was_given_up():
    assert AdmissionMargin().fraction(0.0) == AdmissionMargin().fraction(1e9) == 0.0


def test_each_moment_in_which_queries_are_given_up_counts_once():
    margin = AdmissionMargin()
    for _ in range(16):
        margin.record_refusal(5.0)
    assert margin.fraction(5.0) == STEP
    margin.record_refusal(5.5)
    assert margin.fraction(5.5) == pytest.approx(2 * STEP - 0.5 * DECAY_PER_S)


def test_it_has_an_end_and_passes():
    margin = AdmissionMargin()
    for moment in range(1000):
        margin.record_refusal(moment * 1e-3)
    assert margin.fraction(1.0) == pytest.approx(LARGEST, abs=0.01)
    assert margin.fraction(1.0 + LARGEST / DECAY_PER_S + 1.0) == 0.0
    margin.record_refusal(1000.0)
    assert margin.fraction(1000.0) == STEP


class Query:
    rows, key, query_class = 1, None, QueryClass("app")

    def __init__(self, now: float, within: float = SLO_S):
        self.arrived, self.deadline, self.reservation = now, now + within, None


def binding(run_s: float = RUN_S) -> LateBinding:
    """One device, batches of one."""
    known = LateBinding()
    known.configured({"app": ServiceTerms(SLO_S)}, 0.0)
    option = ServingOption(1, 90.0, LatencyModel([(1, run_s)]), 1)
    known.offered({"device": {QueryClass("app"): OptionSet([option])}}, 0.0)
    known.device_changed("device", 0.0, up=True)
    return known


def record_refusal(known: LateBinding, now: float) -> None:
    """The device is lost with all that is scheduled on it, and comes back."""
    assert known.lost("device", now).refusals
    known.device_changed("device", now, up=True)


def places(known: LateBinding, now: float) -> int:
    """Queries that find a place, until one is refused."""
    count = 0
    while not known.arrived([Query(now)], now).refusals:
        count += 1
    return count


def test_after_queries_were_given_up_a_busy_device_is_scheduled_for_less():
    known = binding()
    now = 0.0
    # Three of 0.3 s end 0.1 s before the SLO.
    assert places(known, now) == 3
    while known._groups.classes[QueryClass("app")].margin.fraction(now) <= 0.1:
        record_refusal(known, now)
        now += 0.01
        places(known, now)
    record_refusal(known, now)
    assert places(known, now) == 2


def test_an_idle_device_takes_what_it_can_answer_in_time_all_the_same():
    known = binding(run_s=0.95 * SLO_S)
    application = known._groups.classes[QueryClass("app")]
    for moment in range(20):
        application.margin.record_refusal(moment * 1e-3)
    application.record_refusal(0.02)
    decisions = known.arrived([Query(0.02)], 0.02)
    assert len(decisions.dispatches) == 1 and not decisions.refusals
