"""Fluid references: the best accuracy of any plan, if demand were known.

Demand also flows evenly in them. For each window of 5 s a linear program: z[t,m] items/s of variant m on device type t,
the time that they take at the fastest batch within a share of the SLO at most the devices of the type (devices may be
divided at will), all demand served; where that is not possible, as much as possible first and then as accurately as
possible. No queues, no rounding, no loads. Batches within SLO / 2 (the rule of Ahmad et al., "Proteus", ASPLOS '24,
Section 4) give the best that plans under that rule can reach; batches within the SLO itself bound every system that
serves as much.

Where not all demand can be served, the reference serves as much as possible, at whatever accuracy that leaves: a system
that serves less may be more accurate, so a reference's accuracy is read together with the share that it serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyscipopt import LP

from scheduler.allocation.capacity import DEDICATED_SHARE_OF_SLO, dedicated_capacity
from scheduler.allocation.problem import LatencyProfile

from .scenario import Scenario

WINDOW_S = 5.0
#: what rounding leaves of the most that can be served, relative; and of a demand that counts as wholly served
TOLERANCE = 1e-7


@dataclass(frozen=True)
class FluidVariant:
    """A variant on a device type.

    Attributes:
        application: index.
        rate: items/s of one device that does nothing else.
    """

    kind: str
    application: int
    accuracy: float
    rate: float


@dataclass(frozen=True)
class Window:
    """The items/s of a window.

    Attributes:
        demand: items/s planned for.
        served: items/s served of them.
        accurate: sum of the served ones' accuracies a second.
    """

    demand: float
    served: float
    accurate: float


@dataclass(frozen=True)
class Reference:
    """The accuracy of a reference, and the share that it serves.

    Attributes:
        accuracy: mean (normalised percent) over the items that can be served, None where nothing can be.
        served: these over all items, 0 to 1; None where nothing is asked for.
    """

    accuracy: float | None
    served: float | None


def fluid_reference(
    scenario: Scenario, share_of_slo: float = DEDICATED_SHARE_OF_SLO, demand_factor: float = 1.0
) -> Reference:
    """The reference over the whole run, where :func:`windows` weigh what they serve."""
    found = windows(scenario, share_of_slo, demand_factor)
    served, demand = sum(window.served for window in found), sum(window.demand for window in found)
    return Reference(
        sum(window.accurate for window in found) / served if served > 0 else None,
        min(served / demand, 1.0) if demand > 0 else None,
    )


def windows(
    scenario: Scenario,
    share_of_slo: float = DEDICATED_SHARE_OF_SLO,
    demand_factor: float = 1.0,
    length_s: float = WINDOW_S,
) -> list[Window]:
    """Return the best of each window.

    Windows start at 0 and go by arrival; each is taken as a whole one, the last one too.

    Args:
        share_of_slo: batches must run within this share of the SLO.
        demand_factor: what is planned for, as a multiple of what arrives; 1 is perfect knowledge.
        length_s: of a window.
    """
    times = np.asarray(scenario.arrivals.times, dtype=float)
    if not len(times):
        return []
    counts = np.zeros((int(times[-1] // length_s) + 1, len(scenario.applications)))
    np.add.at(counts, ((times // length_s).astype(int), np.asarray(scenario.arrivals.applications, dtype=int)), 1)
    fluid = Fluid(options(scenario, share_of_slo), Counter(kind for _, kind in scenario.devices), counts.shape[1])
    demands = counts / length_s * demand_factor
    return [Window(float(demand.sum()), *fluid.best(demand.tolist())) for demand in demands]


def options(scenario: Scenario, share_of_slo: float) -> list[FluidVariant]:
    """Return the variants by device type, at their fastest batch.

    The batch is within ``share_of_slo`` of the SLO.
    """
    index = {name: i for i, name in enumerate(scenario.applications)}
    # The capacity of a dedicated device looks at batches within half of the SLO that it is given.
    scale = share_of_slo / DEDICATED_SHARE_OF_SLO
    found = []
    for model in scenario.models:
        for kind, points in model.points.items():
            capacity = dedicated_capacity(LatencyProfile(points), scenario.slo_s[model.application] * scale)
            if capacity is not None:
                found.append(FluidVariant(kind, index[model.application], model.accuracy, capacity.rate))
    return found


class Fluid:
    """The linear programs of one scenario, built once.

    From window to window only their right-hand sides change, so that the dual simplex goes on from the last basis.

    Args:
        devices: how many of each type.
        applications: how many there are.
    """

    def __init__(self, options: Sequence[FluidVariant], devices: Mapping[str, int], applications: int):
        self._options = options
        self._applications = applications
        self._accuracy = [o.accuracy for o in options]
        rows = [[(i, 1 / o.rate) for i, o in enumerate(options) if o.kind == kind] for kind in devices]
        rows += [[(i, 1.0) for i, o in enumerate(options) if o.application == q] for q in range(applications)]
        rows.append([(i, 1.0) for i in range(len(options))])
        self._demand_row = len(devices)
        self._limits = [float(count) for count in devices.values()]
        self._most = self._model([1.0] * len(options), rows)
        self._best = self._model(self._accuracy, rows)

    def _model(self, objective: Sequence[float], rows: Sequence[Sequence[tuple[int, float]]]) -> LP:
        model = LP(sense="maximize")
        for value in objective:
            model.addCol([], obj=value, lb=0.0)
        limits = self._limits + [0.0] * (len(rows) - len(self._limits))
        for row, limit in zip(rows, limits, strict=True):
            model.addRow(row, lhs=-model.infinity(), rhs=limit)
        return model

    def best(self, demand: Sequence[float]) -> tuple[float, float]:
        """Return the most accurate way to serve as much as can be.

        Args:
            demand: items/s by application index.

        Returns:
            Items/s served, and the sum of their accuracies.
        """
        if not self._options:
            return 0.0, 0.0
        infinity = self._most.infinity()
        for model in (self._most, self._best):
            for q, rate in enumerate(demand):
                model.chgSide(self._demand_row + q, -infinity, rate)
        total_row = self._demand_row + self._applications
        self._most.chgSide(total_row, -infinity, infinity)
        self._most.solve()
        most = self._most.getObjVal()
        self._best.chgSide(total_row, most * (1 - TOLERANCE), infinity)
        self._best.solve()
        z = [max(0.0, value) for value in self._best.getPrimal()]
        return sum(z), sum(a * value for a, value in zip(self._accuracy, z, strict=True))
