"""Exchanges: devices get their best use, and no plan gets worse or breaks a rule."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.allocation import nereus
from scheduler.allocation.columns import Program
from scheduler.allocation.contents import fits
from scheduler.allocation.device_counts import DeviceCounts
from scheduler.allocation.exchanges import Exchanges
from scheduler.allocation.group_options import revisit_periods
from scheduler.allocation.problem import CERTIFIED, ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.solver import Budget, watched
from scheduler.allocation.verification import violations
from tests.examples import examples

from .test_search import SLOW, best_by_enumeration, crowded, options_of, usable
from .worlds import line, problems, variant


def program_of(options) -> Program:
    return Program(options, revisit_periods(options.applications))


def unlike(demand: float) -> Problem:
    """Three devices of three types and twelve applications with five SLOs."""
    slos = (0.15, 0.2, 0.3, 0.4, 0.8)
    speeds = {"old": 2.0, "new": 1.0, "cpu": 4.0}
    return Problem(
        tuple(DeviceResources(kind, kind) for kind in speeds),
        tuple(ApplicationDemand(f"q{i}", slos[i % 5], demand / (1 + i) ** 0.8) for i in range(12)),
        tuple(
            variant(
                f"q{i}{name}",
                f"q{i}",
                accuracy,
                **{kind: line(speed * cost, 0.4 * speed * cost) for kind, speed in speeds.items()},
            )
            for i in range(12)
            for name, accuracy, cost in (("s", 88, 0.5), ("m", 95, 1.0 + i % 3 / 4), ("l", 100, 2.0 + i % 4 / 2))
        ),
    )


@examples(8, **SLOW)
@given(problems(devices=1, applications=3, variants=2))
def test_a_single_device_gets_the_best_use_of_all(problem):
    options = usable(problem)
    periods = revisit_periods(options.applications)
    assume(max((len(options.slices(0, p).slices) for p in periods), default=0) <= 8)
    counts = DeviceCounts(options)
    Exchanges(program_of(options), Budget(math.inf)).improve(counts)
    assert counts.value == pytest.approx(best_by_enumeration(options, periods), rel=1e-6)


@examples(8, **SLOW)
@given(problems(devices=4, applications=4, variants=2), st.integers(0, 3))
def test_exchanges_never_lose_and_keep_the_limits_of_devices(problem, seed):
    options = usable(problem)
    counts = DeviceCounts(options)
    rng = np.random.default_rng(seed)
    dedicated = np.zeros_like(counts.dedicated)
    for g, size in enumerate(counts.sizes):
        for q in rng.integers(0, len(options.applications), size=rng.integers(0, size + 1)):
            dedicated[q, g] += 1
    counts.set(dedicated)
    before, exchanges = counts.value, Exchanges(program_of(options), Budget(math.inf))
    exchanges.improve(counts)
    # Gains of nothing but rounding would go on until the work is spent.
    assert exchanges.work > 0
    assert counts.value >= before * (1 - 1e-9)
    assert (counts.free() >= 0).all()
    assert all(fits(device, options.groups[device.group]) for device in counts.shared)


def test_rounded_relaxations_have_as_many_devices_as_there_are_and_repeat():
    options = options_of(crowded(9, 4, 14.0))
    program = program_of(options)
    program.bound(0.0, Budget(60.0))

    def drawn() -> list[tuple]:
        exchanges = Exchanges(program, Budget(math.inf))
        found = [exchanges.rounded() for _ in range(5)]
        assert all((counts.free() == 0).all() for counts in found)
        return [(counts.dedicated.tolist(), [id(device) for device in counts.shared]) for counts in found]

    assert drawn() == drawn()
    assert len({str(one) for one in drawn()}) > 1


@pytest.mark.parametrize(("work", "seconds"), [(0, math.inf), (10**5, 0.0)])
def test_without_work_or_time_left_no_device_in_use_is_exchanged(work, seconds):
    options = options_of(crowded(7, 3))
    counts = DeviceCounts(options)
    counts.set(np.eye(7, 1, dtype=int) * 3)
    with watched() as watch:
        Exchanges(program_of(options), Budget(seconds), work).improve(counts)
    assert watch.cut_short == (seconds == 0.0)
    assert counts.shared == [] and counts.dedicated[0, 0] == 3


@pytest.mark.parametrize("demand", (220.0, 300.0))
def test_unlike_devices_with_many_applications_get_a_certified_plan(demand):
    problem = unlike(demand)
    begun, plan = nereus.start(problem), nereus.solve(problem)
    assert violations(problem, plan) == []
    assert plan.gap <= CERTIFIED
    assert (sum(plan.served.values()), plan.objective) >= (sum(begun.served.values()), begun.objective)
    assert nereus.solve(problem) == plan
