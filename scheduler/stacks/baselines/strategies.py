"""Clipper with a static placement, and Sommelier, as Proteus compares with them.

Sources: Crankshaw et al., "Clipper" (NSDI '17); Guo et al., "Sommelier" (SIGMOD '22); Proteus, Section 6.1.1.

With Clipper each application has one variant, with high throughput the least accurate one, with high accuracy the most
accurate one, among those that some device can run within half of the SLO. The first placement holds for good
(:mod:`..placed_once`); afterwards only rates follow the demand, in constant proportions. Clipper's batching is a batch
policy of its own. Sommelier plans for one server and one model: each device keeps the share of its application's
queries that it had at first, and takes the most accurate variant that carries it.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.allocation.problem import Allocation, Problem

from ..dedicated import DedicatedChoices, ResidentCapacity, allocation_with, capacity_by_application
from ..placed_once import fixed, only, static


def clipper_ht(problem: Problem) -> Allocation:
    return static(replace(problem, variants=only(problem, most_accurate=False)), "least accurate")


def clipper_ha(problem: Problem) -> Allocation:
    return static(replace(problem, variants=only(problem, most_accurate=True)), "most accurate")


def sommelier(problem: Problem) -> Allocation:
    """Choose for each device alone the most accurate variant for its share.

    It is the most accurate one that can serve the device's share of the application's demand, or else the fastest one.
    Shares are in proportion to what the devices could do with their fastest variants.
    """
    choices = DedicatedChoices(problem)
    fastest, placed = fixed(problem, choices)
    demand = {a.id: a.demand for a in problem.applications}
    most = capacity_by_application(fastest)
    residents: dict[str, ResidentCapacity] = {}
    rates: dict[str, float] = {}
    for device, quick in fastest.items():
        application = quick.variant.application
        share = demand[application] * quick.capacity / most[application]
        able = [resident for resident in choices.by_accuracy(quick.device, application) if resident.capacity >= share]
        residents[device] = able[0] if able else quick
        rates[device] = min(share, residents[device].capacity)
    return allocation_with(
        problem,
        residents,
        rates,
        f"Each device keeps the application that {placed}, and runs the most accurate variant that can serve its "
        "share.",
        "Devices do not change applications or shares in this stack: choose another one, or add devices.",
    )
