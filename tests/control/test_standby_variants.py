"""Which variants stand by on a device beside those that a plan places there."""

from __future__ import annotations

from scheduler.allocation.problem import (
    Allocation,
    ApplicationDemand,
    CandidateVariant,
    DeviceResources,
    LatencyProfile,
    Placement,
    Problem,
)
from scheduler.control.standby import MEMORY_SHARE, standby_variants

MIB = 2**20


def variant(id: str, accuracy: float, seconds: float, memory: int = 10 * MIB) -> CandidateVariant:
    return CandidateVariant(id, "app", accuracy, {"cpu": LatencyProfile(((1, seconds), (8, 2 * seconds)), memory)})


def problem(memory: int | None, *variants: CandidateVariant) -> Problem:
    return Problem((DeviceResources("d0", "cpu", memory),), (ApplicationDemand("app", 0.3, 10.0),), variants)


def allocation(placed: str, **fields) -> Allocation:
    return Allocation((Placement("d0", placed, 10.0, 4, 0.5),), {"app": 10.0}, {"app": 0.0}, 100.0, **fields)


BIG, MIDDLE, SMALL = variant("big", 100, 0.1), variant("middle", 95, 0.05), variant("small", 80, 0.01)


def test_a_strategys_residents_stand_by_in_its_order_without_those_that_are_placed():
    found = standby_variants(
        problem(None, BIG, MIDDLE, SMALL), allocation("big", residents={"d0": ("small", "big", "middle")})
    )
    assert found == {"d0": ["small", "middle"]}


def test_a_smaller_one_may_fit_where_a_larger_one_does_not():
    huge = variant("huge", 99, 0.08, memory=100 * MIB)
    world = problem(int(20 * MIB / MEMORY_SHARE), BIG, huge, SMALL)
    assert standby_variants(world, allocation("big", residents={"d0": ("huge", "small")})) == {"d0": ["small"]}
