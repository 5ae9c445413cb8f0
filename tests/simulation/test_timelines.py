"""Simulated events against timelines worked out by hand."""

from __future__ import annotations

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.engine import DROPPED, IN_TIME, LATE
from scheduler.simulation.scenario import ControlSettings
from workers.dispatch.stack import Stack, published

from .worlds import model, world

ONE = model("q", "m", cpu={1: 100, 2: 120})


PROTEUS, NEREUS = (published(name, "nexus", "shares") for name in ("proteus", "nereus"))


def timeline(scenario, stack: Stack | str = PROTEUS):
    """(outcome, when answered in ms) by query."""
    record = simulate(scenario, stack).record
    return [(o, pytest.approx(t * 1000)) for o, t in zip(record.outcome, record.answered, strict=True)]


def test_a_free_device_serves_at_once_and_the_next_query_waits_for_it():
    assert timeline(world([ONE], [(0, "q"), (50, "q")])) == [(IN_TIME, 100), (IN_TIME, 200)]


def test_what_waited_meanwhile_runs_together():
    assert timeline(world([ONE], [(0, "q"), (50, "q"), (60, "q")])) == [(IN_TIME, 100)] + [(IN_TIME, 220)] * 2


def test_a_policy_that_waits_on_purpose_starts_in_time_for_its_first_query():
    # It might still get a second one, whose batch takes 120 ms: it waits until 180 ms.
    assert timeline(world([ONE], [(0, "q")]), "proteus") == [(IN_TIME, 280)]


def test_a_batch_between_two_profiled_sizes_costs_the_larger():
    stepped = model("q", "m", cpu={1: 50, 4: 100})
    arrivals = [(0, "q"), (1, "q"), (2, "q"), (3, "q")]
    assert timeline(world([stepped], arrivals)) == [(IN_TIME, 50)] + [(IN_TIME, 150)] * 3


def test_what_cannot_be_in_time_is_dropped_and_counted():
    outcomes = [o for o, _ in timeline(world([ONE], [(0, "q")] * 9))]
    # 1 alone until 100 ms, 2 until 220 ms; the others could not end by 300 ms.
    assert outcomes.count(IN_TIME) == 3 and outcomes.count(DROPPED) == 6


def test_the_network_takes_its_time_both_ways():
    assert timeline(world([ONE], [(0, "q")], network_s=0.01)) == [(IN_TIME, 120)]


def test_a_query_that_the_network_makes_late_is_dropped():
    assert [o for o, _ in timeline(world([ONE], [(0, "q")], network_s=0.11))] == [DROPPED]


def test_initial_loads_keep_the_device_from_serving():
    arrivals = [(0, "q"), (1900, "q"), (2500, "q")]
    assert timeline(world([ONE], arrivals, load_time_s=2.0))[1:] == [(IN_TIME, 2100), (IN_TIME, 2600)]
    assert timeline(world([ONE], arrivals, load_time_s=2.0))[0][0] == DROPPED


def test_an_application_that_nothing_can_serve_is_dropped_on_arrival():
    slow = model("slow", "m", cpu={1: 900})
    assert timeline(world([ONE, slow], [(0, "slow"), (10, "q")])) == [(DROPPED, 0), (IN_TIME, 110)]


def test_noise_makes_queries_late_that_were_decided_to_be_in_time():
    scenario = world([ONE], [(400 * i, "q") for i in range(60)], profile_noise=0.3)
    outcomes = [o for o, _ in timeline(scenario, "proteus")]
    assert 0 < outcomes.count(LATE) < 60
    assert outcomes.count(IN_TIME) + outcomes.count(LATE) == 60


@pytest.mark.parametrize("routing", ["shares", "active-first"])
def test_two_equal_devices_share_the_queries(routing):
    stack = published("proteus", "nexus", routing)
    answers = timeline(world([ONE], [(0, "q"), (0, "q")], ["cpu", "cpu"]), stack)
    assert answers == [(IN_TIME, 100)] * 2


def test_applications_take_turns_on_a_shared_device():
    other = model("p", "n", cpu={1: 20})
    answers = timeline(world([ONE, other], [(0, "q"), (10, "p"), (20, "q")]), NEREUS)
    assert answers == [(IN_TIME, 100), (IN_TIME, 120), (IN_TIME, 220)]


def test_a_plan_follows_what_has_arrived_and_queries_of_replaced_variants_are_not_lost():
    slow = model("q", "accurate", 100, cpu={1: 100})
    quick = model("q", "quick", 80, cpu={1: 10, 4: 20})
    arrivals = [(1000 + 10 * i, "q") for i in range(500)]
    control = ControlSettings(period_s=2, burst_check_s=1000, initial_qps=5)
    record = simulate(world([slow, quick], arrivals, control=control), "proteus").record
    used = [record.variants[v][1] if v >= 0 else None for v in record.variant]
    first, last = record.plans[0].allocation, record.plans[-1].allocation
    assert [p.variant for p in first.placements] == ["q/accurate"]
    assert [p.variant for p in last.placements] == ["q/quick"]
    assert set(used[:50]) <= {"accurate", None} and set(used[200:]) == {"quick"}


def test_a_burst_is_noticed_between_two_plans():
    quick = model("q", "quick", 80, cpu={1: 10, 4: 20})
    slow = model("q", "accurate", 100, cpu={1: 100})
    arrivals = [(5000 + 10 * i, "q") for i in range(500)]
    control = ControlSettings(period_s=1000, burst_check_s=0.5, initial_qps=5)
    plans = simulate(world([slow, quick], arrivals, control=control), "proteus").record.plans
    # The first check that sees it is the first at or after its start.
    assert next(p.at for p in plans if any(x.variant == "q/quick" for x in p.allocation.placements)) in (5.5, 6.0)


def test_a_variant_that_is_to_be_loaded_leaves_its_devices_queries_to_ready_ones():
    slow = model("q", "accurate", 100, cpu={1: 100})
    quick = model("q", "quick", 80, cpu={1: 10, 4: 20})
    arrivals = [(6000 + 12.5 * i, "q") for i in range(1200)]
    control = ControlSettings(period_s=2, burst_check_s=1, initial_qps=5)
    scenario = world([slow, quick], arrivals, ["cpu"] * 3, control=control, load_time_s=1.0)
    results = simulate(scenario, published("proteus", "nexus", "active-first"))
    assert results.summary["in_time"] + results.summary["late"] + results.summary["dropped"] == 1200
    assert results.record.outcome[-400:].count(IN_TIME) == 400


def test_no_more_variants_are_resident_than_allowed():
    models = [model(f"q{i}", "m", cpu={1: 10, 4: 20}) for i in range(4)]
    arrivals = [(10 * i, f"q{i % 4}") for i in range(200)]
    free = simulate(world(models, arrivals), NEREUS)
    tight = simulate(world(models, arrivals, max_resident={"cpu": 2}), NEREUS)
    assert len(free.record.plans[0].allocation.placements) == 4 and free.summary["in_time"] == 200
    assert len(tight.record.plans[0].allocation.placements) == 2 and tight.summary["in_time"] == 100
