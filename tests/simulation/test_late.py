"""Late binding in a run: queries wait in the gateway, and failures on the way are put right and counted once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.engine import DROPPED, IN_TIME
from scheduler.simulation.late import LateEngine
from scheduler.simulation.scenario import ControlSettings
from workers.dispatch.stacks import DEFAULT, STACKS

from .worlds import model, world

#: late binding of what another strategy places
STACK = replace(STACKS[DEFAULT], strategy="proteus")
ONE = model("q", "m", cpu={1: 100, 2: 200})


def timeline(scenario):
    """(outcome, when answered in ms) by query."""
    record = simulate(scenario, STACK).record
    return [(o, pytest.approx(t * 1000)) for o, t in zip(record.outcome, record.answered, strict=True)]


def test_queries_follow_each_other_and_what_cannot_be_in_time_is_dropped_when_it_arrives():
    # Before it has proved to keep its times a device is counted on for a little less: the third would just be in time.
    assert timeline(world([ONE], [(0, "q"), (1, "q"), (2, "q"), (3, "q")])) == [
        (IN_TIME, 100),
        (IN_TIME, 200),
        (DROPPED, 2),
        (DROPPED, 3),
    ]


def test_the_network_takes_its_time_both_ways_but_not_between_batches():
    assert timeline(world([ONE], [(0, "q"), (1, "q")], network_s=0.01)) == [
        (IN_TIME, 120),
        # Granted so early that it should arrive as the first one ends; a reserve for noise makes it a little later.
        (IN_TIME, pytest.approx(223)),
    ]


def test_a_network_slower_than_the_slo_leaves_nothing_to_try():
    assert [o for o, _ in timeline(world([ONE], [(0, "q")], network_s=0.11))] == [DROPPED]


class Watched(LateEngine):
    """Notes what devices decline and give up."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.declined: list[int] = []
        self.given_up: list[int] = []

    def _on_declined(self, now, batch):
        self.declined += [query.id for query in batch.queries]
        super()._on_declined(now, batch)

    def _on_given_up(self, now, queries):
        self.given_up += [query.id for query in queries]
        super()._on_given_up(now, queries)


def test_what_was_on_its_way_to_a_variant_that_is_gone_is_declined_booked_again_and_counted_once():
    slow = model("q", "accurate", 100, cpu={1: 60})
    quick = model("q", "quick", 80, cpu={1: 10, 4: 20})
    # A burst begins at 2 s, is noticed at 2.25 s, and the plan made then has room for the quick variant only.
    arrivals = [(250.0 * i, "q") for i in range(8)] + [(2000 + 20.0 * i, "q") for i in range(150)]
    control = ControlSettings(period_s=50, burst_check_s=0.25, initial_qps=3)
    scenario = world([slow, quick], arrivals, control=control, network_s=0.02, max_resident={"cpu": 1})
    engine = Watched(scenario, STACK)
    record = engine.run()
    assert engine.declined
    names = [record.variants[v][1] if v >= 0 else None for v in record.variant]
    again = [i for i in engine.declined if record.outcome[i] == IN_TIME]
    assert again and {names[i] for i in again} == {"quick"}


def test_a_device_gives_up_what_would_be_late_and_that_is_counted_as_dropped():
    # The second of two batches under way waits for the first, which now and then takes very long.
    arrivals = [(90.0 * i, "q") for i in range(300)]
    scenario = world([model("q", "m", cpu={1: 100})], arrivals, network_s=0.005, profile_noise=0.8)
    engine = Watched(scenario, STACK)
    record = engine.run()
    assert engine.given_up
    assert all(record.outcome[i] == DROPPED and record.variant[i] == -1 for i in engine.given_up)
    assert len(set(engine.given_up)) == len(engine.given_up)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_devices_that_keep_their_times_answer_nothing_late(noise):
    arrivals = [(23.0 * i, "q") for i in range(600)]
    two = model("q", "m", cpu={1: 40, 2: 50, 4: 80})
    summary = simulate(world([two], arrivals, ["cpu"] * 2, profile_noise=noise, network_s=0.001), STACK).summary
    assert (summary["late"] == 0) if not noise else (summary["late"] < 12)
    assert summary["in_time"] > 580
