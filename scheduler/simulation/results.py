"""Results of a simulation: counted strictly, by the second of arrival.

Every query that arrived is counted once: in time, late (later than its SLO) or dropped. Ratios run from 0 to 1,
accuracies are normalised percent over the queries in time.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from workers.dispatch.stack import Stack

from .engine import IN_TIME, LATE, Record
from .fluid import fluid_reference
from .scenario import Scenario
from .seconds import Second

#: the first seconds, in which everything starts cold, do not count for the accuracy drop
SETTLED_S = 20
DROP_WINDOW_S = 10


class SimulationResults:
    def __init__(self, scenario: Scenario, stack: Stack, record: Record):
        self.scenario = scenario
        self.stack = stack
        self.record = record
        self._times = np.asarray(scenario.arrivals.times, dtype=float)
        self._applications = np.asarray(scenario.arrivals.applications, dtype=int)
        self._outcome = np.frombuffer(bytes(record.outcome), dtype=np.uint8)
        self._variant = np.asarray(record.variant, dtype=int)
        accuracies = np.array([accuracy for _, _, accuracy in record.variants] + [np.nan])
        self._accuracy = accuracies[self._variant]
        self._taken = np.asarray(record.answered, dtype=float) - self._times

    @cached_property
    def per_second(self) -> list[Second]:
        """A line for each second from 0 to that of the last arrival."""
        if not len(self._times):
            return []
        second = self._times.astype(int)
        length = int(second[-1]) + 1
        arrived = np.bincount(second, minlength=length)
        good = self._outcome == IN_TIME
        in_time = np.bincount(second[good], minlength=length)
        late = np.bincount(second[self._outcome == LATE], minlength=length)
        accuracy = np.bincount(second[good], weights=self._accuracy[good], minlength=length)
        return [
            Second(
                t,
                int(arrived[t]),
                int(in_time[t]),
                int(late[t]),
                int(arrived[t] - in_time[t] - late[t]),
                float(accuracy[t] / in_time[t]) if in_time[t] else None,
            )
            for t in range(length)
        ]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """As in ``summary.json``; None where a figure is undefined."""
        allocations = [planned.allocation for planned in self.record.plans]
        solve_s = [allocation.solve_s for allocation in allocations]
        wall_s, cpu_s = self.record.wall_s, self.record.cpu_s
        half, whole = fluid_reference(self.scenario), fluid_reference(self.scenario, 1.0)
        return {
            "scenario": self.scenario.name,
            "strategy": self.stack.strategy,
            "batching": self.stack.batching,
            "routing": self.stack.routing,
            "seed": self.scenario.seed,
            "devices": len(self.scenario.devices),
            **self._figures(np.ones(len(self._times), dtype=bool)),
            "fluid_reference_accuracy": half.accuracy,
            "fluid_reference_served": half.served,
            "fluid_reference_slo_accuracy": whole.accuracy,
            "fluid_reference_slo_served": whole.served,
            "duration_s": float(self._times[-1]) if len(self._times) else 0.0,
            "wall_s": wall_s,
            "queries_per_wall_s": len(self._times) / wall_s if wall_s > 0 else None,
            "cpu_s": cpu_s,
            "queries_per_cpu_s": len(self._times) / cpu_s if cpu_s > 0 else None,
            "solves": len(solve_s),
            "total_solve_s": sum(solve_s),
            "max_solve_s": max(solve_s, default=0.0),
            "solves_cut_short": sum(allocation.cut_short for allocation in allocations),
            "loads": self.record.loads,
            "mean_cost": self._mean_cost(),
            "per_application": {
                name: self._figures(self._applications == index)
                for index, name in enumerate(self.scenario.applications)
            },
            "per_variant": self._per_variant(),
        }

    def _mean_cost(self) -> float:
        """Of devices with a resident, over the time until the last arrival or plan."""
        plans = self.record.plans
        ends = [planned.at for planned in plans[1:]]
        ends.append(max(float(self._times[-1]) if len(self._times) else 0.0, plans[-1].at) if plans else 0.0)
        total = 0.0
        for planned, end in zip(plans, ends, strict=False):
            used = {
                placement.device for placement in planned.allocation.placements
            } | planned.allocation.residents.keys()
            total += (end - planned.at) * sum(device.cost for device in planned.problem.devices if device.id in used)
        return total / ends[-1] if ends[-1] > 0 else 0.0

    def _figures(self, mask: np.ndarray) -> dict[str, Any]:
        outcome = self._outcome[mask]
        good = mask & (self._outcome == IN_TIME)
        queries, in_time, late = len(outcome), int(good.sum()), int((outcome == LATE).sum())
        taken_ms = self._taken[good] * 1000
        return {
            "queries": queries,
            "in_time": in_time,
            "late": late,
            "dropped": queries - in_time - late,
            "violation_ratio": (queries - in_time) / queries if queries else 0.0,
            "effective_accuracy": float(self._accuracy[good].mean()) if in_time else None,
            "max_accuracy_drop_10s": self._drop(good),
            "median_latency_ms": float(np.median(taken_ms)) if in_time else None,
            "p99_latency_ms": float(np.quantile(taken_ms, 0.99)) if in_time else None,
        }

    def _drop(self, good: np.ndarray) -> float | None:
        """100 less the lowest accuracy of a whole 10-s window after the first 20 s; None: no window.

        A window in which nothing was in time has no accuracy and shows in the violations alone.
        """
        if not len(self._times):
            return None
        # A window is whole where arrivals reach its last second.
        windows = int((self._times[-1] + 1 - SETTLED_S) // DROP_WINDOW_S)
        if windows < 1:
            return None
        start, end = SETTLED_S, SETTLED_S + windows * DROP_WINDOW_S
        mask = good & (self._times >= start) & (self._times < end)
        window = ((self._times[mask] - start) // DROP_WINDOW_S).astype(int)
        counts = np.bincount(window, minlength=windows)
        sums = np.bincount(window, weights=self._accuracy[mask], minlength=windows)
        return 100.0 - float((sums[counts > 0] / counts[counts > 0]).min()) if counts.any() else None

    def _per_variant(self) -> dict[str, dict[str, Any]]:
        answered = self._variant >= 0
        count = len(self.record.variants)
        in_time = np.bincount(self._variant[answered & (self._outcome == IN_TIME)], minlength=count)
        late = np.bincount(self._variant[answered & (self._outcome == LATE)], minlength=count)
        return {
            f"{application}/{name}": {"in_time": int(in_time[index]), "late": int(late[index]), "accuracy": accuracy}
            for index, (application, name, accuracy) in enumerate(self.record.variants)
            if in_time[index] or late[index]
        }
