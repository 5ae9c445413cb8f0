"""Fluid references: the best accuracy of any plan, if demand were known.

Demand also flows evenly in them. Each window of 5 s is planned for by the relaxed problem of `nereus`
(:mod:`scheduler.allocation.relaxation`): devices are divided at will, as much demand as possible is served, and that as
accurately as possible. No queues, no rounding, no loads. Batches within SLO / 2 (the rule of Ahmad et al., "Proteus",
ASPLOS '24, Section 4) give the best that plans under that rule can reach; batches within the SLO itself bound every
system that serves as much.

A system that serves less may be more accurate, so a reference's accuracy is read together with the share that it
serves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.allocation.capacity import DEDICATED_SHARE_OF_SLO
from scheduler.allocation.group_options import GroupOptions
from scheduler.allocation.groups import grouped
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile
from scheduler.allocation.relaxation import relax

from .scenario import Scenario

WINDOW_S = 5.0


@dataclass(frozen=True)
class Reference:
    """The accuracy of a reference, and the share that it serves.

    Attributes:
        accuracy: mean (normalised percent) over the items that can be served, None where nothing can be.
        served: these over all items, 0 to 1; None where nothing is asked for.
    """

    accuracy: float | None
    served: float | None


def fluid_reference(scenario: Scenario, share_of_slo: float = DEDICATED_SHARE_OF_SLO) -> Reference:
    """The reference over the run, where windows (all of 5 s) count by what they serve."""
    times = np.asarray(scenario.arrivals.times, dtype=float)
    if not len(times):
        return Reference(None, None)
    counts = np.zeros((int(times[-1] // WINDOW_S) + 1, len(scenario.applications)))
    np.add.at(counts, ((times // WINDOW_S).astype(int), np.asarray(scenario.arrivals.applications, dtype=int)), 1)
    groups = grouped([DeviceResources(name, kind) for name, kind in scenario.devices])
    variants = tuple(
        CandidateVariant(m.id, m.application, m.accuracy, {kind: LatencyProfile(p) for kind, p in m.points.items()})
        for m in scenario.models
    )
    # A dedicated device has batches within half of the SLO that it is given.
    scale = share_of_slo / DEDICATED_SHARE_OF_SLO
    served = accurate = 0.0
    for rates in (counts / WINDOW_S).tolist():
        asked = [
            ApplicationDemand(name, scenario.slo_s[name] * scale, rate)
            for name, rate in zip(scenario.applications, rates, strict=True)
            if rate > 0
        ]
        best = relax(GroupOptions(groups, asked, variants)) if asked else None
        if best is not None:
            served, accurate = served + best.served, accurate + best.points
    return Reference(accurate / served if served > 0 else None, min(served * WINDOW_S / len(times), 1.0))
