"""Late binding with one part removed decides otherwise than the whole."""

import random

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.ablations import PARTS, without
from scheduler.simulation.scenario import ControlSettings

from .worlds import model, world


def outcomes(part=None):
    """Outcomes of a burst's queries on devices with little capacity to spare."""
    draw = random.Random(1)
    models = [
        model(name, variant, accuracy, cpu={1: ms, 2: 1.4 * ms, 4: 2.2 * ms, 8: 3.8 * ms})
        for name, slowness in (("p", 1.0), ("q", 2.0))
        for variant, accuracy, ms in (
            ("exact", 100, 40 * slowness),
            ("fair", 90, 15 * slowness),
            ("rough", 75, slowness),
        )
    ]
    arrivals, at = [], 0.0
    while at < 12_000:
        at += draw.expovariate(1.0 if 4000 < at < 6000 else 0.05)
        arrivals.append((at, draw.choice("pq")))
    scenario = world(
        models,
        arrivals,
        ["cpu"] * 3,
        control=ControlSettings(period_s=3, burst_check_s=1),
        slo_s={"p": 0.15, "q": 0.6},
        max_resident={"cpu": 3},
        load_time_s=0.2,
        network_s=0.002,
        profile_noise=0.2,
    )
    record = simulate(scenario, "nereus", part=part).record
    return list(zip(record.outcome, record.answered, record.variant, strict=True))


@pytest.fixture(scope="module")
def whole():
    return outcomes()


#: parts that change nothing in so small a world
ELSEWHERE = {"margin", "starvation", "stragglers", "exchanges", "rounding", "scip"}


@pytest.mark.parametrize("part", [part for part in PARTS if part not in ELSEWHERE])
def test_without_a_part_other_decisions_are_made(part, whole):
    assert outcomes(part) != whole


def test_every_part_is_there_to_be_taken_away_and_comes_back(whole):
    for part in PARTS:
        with without(part):
            pass
    assert outcomes() == whole
