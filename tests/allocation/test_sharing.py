"""Devices shared in time slices."""

from dataclasses import replace
from itertools import product

import pytest

from scheduler.allocation import sharing
from scheduler.allocation.problem import ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.strategies import get
from scheduler.allocation.time_slices import FILL, MAX_PERIODS, revisit_periods
from scheduler.allocation.verification import violations

from .worlds import GIB, line, variant, with_loaded


def world(devices, applications, *, demand=2.0, kinds=("cpu",), memory=None, **limits) -> Problem:
    """Applications of three variants each whose costs and SLOs differ."""
    names = [f"q{i}" for i in range(applications)]
    speed = {kind: 0.4**i for i, kind in enumerate(kinds)}
    variants = [
        variant(
            f"{q}{size}",
            q,
            accuracy,
            **{
                kind: line(factor * s * (1 + i % 3), factor * s * (2 + i % 4), (1, 2, 4, 8, 16), memory=GIB * cost // 8)
                for kind, s in speed.items()
            },
        )
        for i, q in enumerate(names)
        for size, accuracy, factor, cost in (("s", 85, 0.5, 1), ("m", 94 + i % 3, 1.2, 2), ("l", 100, 3.0, 6))
    ]
    boxes = tuple(DeviceResources(f"d{i}", kinds[i % len(kinds)], memory, **limits) for i in range(devices))
    slos = (0.1, 0.2, 0.3, 0.5)
    asked = tuple(ApplicationDemand(q, slos[i % 4], demand * (1 + i % 3)) for i, q in enumerate(names))
    return Problem(boxes, asked, tuple(variants), time_limit_s=3.0)


def test_more_applications_than_devices_are_all_served():
    problem = world(3, 12, kinds=("cpu", "old", "new"))
    allocation = get("proteus-sharing")(problem)
    assert violations(problem, allocation) == []
    assert sum(allocation.left_out.values()) == 0
    assert allocation.revisit_s
    assert allocation.accuracy > 95


def test_proteus_itself_keeps_one_variant_a_device():
    problem = world(3, 12, kinds=("cpu", "old", "new"))
    allocation = get("proteus")(problem)
    assert violations(problem, allocation) == []
    assert sum(left > 0 for left in allocation.left_out.values()) == 9
    assert allocation.revisit_s == {} and len(allocation.placements) == 3


def test_memory_and_residents_are_respected():
    problem = world(2, 6, memory=GIB, max_resident=4)
    allocation = get("proteus-sharing")(problem)
    assert violations(problem, allocation) == []
    assert sum(allocation.left_out.values()) == 0
    unlimited = get("proteus-sharing")(world(2, 6))
    assert unlimited.accuracy > allocation.accuracy


def test_one_resident_a_device_leaves_applications_out():
    problem = world(2, 5, max_resident=1)
    allocation = get("proteus-sharing")(problem)
    assert violations(problem, allocation) == []
    assert sum(left > 0 for left in allocation.left_out.values()) == 3


def test_a_live_shared_plan_stays():
    problem = world(2, 6)
    live = with_loaded(problem, get("proteus-sharing")(problem))
    settled = with_loaded(live, get("proteus-sharing")(live))
    assert get("proteus-sharing")(settled).moves == 0


def test_many_devices_and_applications_get_a_packed_plan_with_its_gap():
    problem = world(16, 40, demand=20.0, kinds=("cpu", "old", "new"), memory=4 * GIB)
    allocation = get("proteus-sharing")(problem)
    assert violations(problem, allocation) == []
    assert sum(allocation.left_out.values()) < 0.02 * sum(a.demand for a in problem.applications)
    assert 0 <= allocation.gap < 0.2
    assert allocation.status in ("optimal", "feasible")
    assert allocation.bound >= allocation.objective


def test_revisit_periods_admit_every_application_and_are_few():
    applications = [ApplicationDemand(f"q{i}", 0.05 * (i + 1), 1.0) for i in range(9)]
    periods = revisit_periods(applications)
    assert len(periods) == MAX_PERIODS
    assert periods[0] == 0.025


def most_served(problem: Problem) -> float:
    """Return the items/s served by the best of all plans, by enumeration.

    Each device may hold one variant of each application. All have linear profiles, and all rows and all revisit periods
    are tried.
    """
    plans = []
    for device in problem.devices:
        mine = set()
        for revisit_s in revisit_periods(list(problem.applications)):
            rows = []
            for a, m in zip(problem.applications, problem.variants, strict=True):
                points = m.profiles[device.type].points
                able = a.slo_s > revisit_s
                rows.append(
                    [(0, 0.0)] + [(b, s) for b, s in points if able and s <= min(revisit_s, a.slo_s - revisit_s)]
                )
            for chosen in product(*rows):
                if sum(s for _, s in chosen) <= revisit_s * device.available * FILL * (1 + 1e-9):
                    mine.add(tuple(b / revisit_s for b, _ in chosen))
        for i, (a, m) in enumerate(zip(problem.applications, problem.variants, strict=True)):
            rate = max((b / s for b, s in m.profiles[device.type].points if s <= a.slo_s / 2), default=0.0)
            mine.add(tuple(rate * device.available if j == i else 0.0 for j in range(len(problem.applications))))
        plans.append(
            [p for p in mine if not any(o != p and all(x >= y for x, y in zip(o, p, strict=True)) for o in mine)]
        )
    return max(
        sum(
            min(a.demand, sum(capacity))
            for a, capacity in zip(problem.applications, zip(*chosen, strict=True), strict=True)
        )
        for chosen in product(*plans)
    )


@pytest.mark.parametrize("seed", range(8))
def test_as_much_is_served_as_enumeration_finds(seed):
    problem = Problem(
        (DeviceResources("d0", "cpu"), DeviceResources("d1", "cpu", available=0.95)),
        tuple(
            ApplicationDemand(f"q{i}", (0.1, 0.15, 0.3)[(i + seed) % 3], 15.0 + 23 * ((seed * 5 + i * 3) % 7))
            for i in range(3)
        ),
        tuple(
            variant(f"m{i}", f"q{i}", 90.0, cpu=line(1 + (seed + i) % 4 * 3, 4 + (seed * 3 + i) % 5 * 2, (1, 2, 3, 4)))
            for i in range(3)
        ),
        time_limit_s=10.0,
    )
    allocation = sharing.solve(problem)
    assert violations(problem, allocation) == []
    assert sum(allocation.served.values()) == pytest.approx(most_served(problem), rel=1e-4)


@pytest.mark.parametrize(("devices", "applications"), [(3, 12), (16, 40)])
def test_without_time_to_solve_there_still_is_a_sensible_plan(devices, applications):
    problem = replace(
        world(devices, applications, demand=5.0, kinds=("cpu", "old", "new"), memory=4 * GIB), time_limit_s=0.02
    )
    allocation = get("proteus-sharing")(problem)
    assert violations(problem, allocation) == []
    assert sum(allocation.served.values()) > 0.9 * sum(a.demand for a in problem.applications)
    assert allocation.status in ("feasible", "optimal")
    assert allocation.bound >= allocation.objective
