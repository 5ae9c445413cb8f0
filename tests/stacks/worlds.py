"""Problems for the baselines, and what they become once an allocation is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Problem
from scheduler.stacks.strategies import get
from tests.allocation.worlds import line, variant, with_loaded

#: applications a and b on three slow devices and one quick one; rates are rows/s of a dedicated device, SLO 200 ms
#: (a1: 100 slow, 400 quick; a2: 50 and 200; a3: quick only, 40. b1: 100 and 200; b2: 20 and 100)
VARIANTS = (
    variant("a1", "a", 80, slow=line(0, 10), quick=line(0, 2.5)),
    variant("a2", "a", 90, slow=line(0, 20), quick=line(0, 5)),
    variant("a3", "a", 100, slow=line(0, 150), quick=line(0, 25)),
    variant("b1", "b", 70, slow=line(0, 10), quick=line(0, 5)),
    variant("b2", "b", 100, slow=line(0, 50), quick=line(0, 10)),
)
DEVICES = (*(DeviceResources(f"s{i}", "slow") for i in range(3)), DeviceResources("q", "quick"))


def small(a: float = 10.0, b: float = 10.0, **changes) -> Problem:
    applications = (ApplicationDemand("a", 0.2, a), ApplicationDemand("b", 0.2, b))
    return replace(Problem(DEVICES, applications, VARIANTS, time_limit_s=20.0), **changes)


def in_force(problem: Problem, allocation: Allocation, **demand: float) -> Problem:
    """The problem of the next plan: the allocation is in force and loaded, and some demands have changed."""
    applications = tuple(replace(a, demand=demand.get(a.id, a.demand)) for a in problem.applications)
    return replace(with_loaded(problem, allocation), applications=applications, previous=allocation)


def again(name: str, problem: Problem, allocation: Allocation, **demand: float) -> Allocation:
    return get(name)(in_force(problem, allocation, **demand))


def hosts(allocation: Allocation) -> Mapping[str, str]:
    """Variant by device."""
    return {p.device: p.variant for p in allocation.placements}


def sides(problem: Problem, allocation: Allocation) -> Mapping[str, str]:
    """Application by device."""
    application = {v.id: v.application for v in problem.variants}
    return {p.device: application[p.variant] for p in allocation.placements}


def rates(allocation: Allocation) -> Mapping[str, float]:
    return {p.device: p.rate for p in allocation.placements}
