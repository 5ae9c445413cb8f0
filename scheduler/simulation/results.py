"""What came of a simulation: counted strictly, by the second of arrival, and written as files.

Every query that arrived is counted once: in time, late (later than its SLO) or dropped. Ratios run from 0 to 1,
accuracies are normalised percent over the queries in time.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .engine import IN_TIME, LATE, Record
from .fluid import fluid_reference
from .report import report
from .scenario import Scenario
from .stacks import Stack

#: the first seconds, in which everything starts cold, do not count for the accuracy drop
SETTLED_S = 20
DROP_WINDOW_S = 10


@dataclass(frozen=True)
class Second:
    """Queries that arrived in a second. ``effective_accuracy`` None: none of them was in time."""

    second: int
    arrived: int
    in_time: int
    late: int
    dropped: int
    effective_accuracy: float | None


class Results:
    """A finished simulation. ``summary``: as in ``summary.json``; None stands where there is nothing to tell."""

    def __init__(self, scenario: Scenario, stack: Stack, record: Record):
        self.scenario = scenario
        self.stack = stack
        self.record = record
        self._times = np.asarray(scenario.arrivals.times, dtype=float)
        self._applications = np.asarray(scenario.arrivals.applications, dtype=int)
        self._outcome = np.frombuffer(bytes(record.outcome), dtype=np.uint8)
        accuracies = np.array([accuracy for _, _, accuracy in record.variants] + [np.nan])
        self._accuracy = accuracies[np.asarray(record.variant, dtype=int)]
        self.per_second = self._per_second()
        self.summary = self._summary()

    def _count(self, mask: np.ndarray) -> dict[str, Any]:
        outcome = self._outcome[mask]
        queries, in_time, late = len(outcome), int((outcome == IN_TIME).sum()), int((outcome == LATE).sum())
        served = self._accuracy[mask & (self._outcome == IN_TIME)]
        return {
            "queries": queries,
            "in_time": in_time,
            "late": late,
            "dropped": queries - in_time - late,
            "violation_ratio": (queries - in_time) / queries if queries else 0.0,
            "effective_accuracy": float(served.mean()) if len(served) else None,
        }

    def _summary(self) -> dict[str, Any]:
        everything = np.ones(len(self._times), dtype=bool)
        allocations = [planned.allocation for planned in self.record.plans]
        solve_s = [allocation.solve_s for allocation in allocations]
        answered = self._outcome != 0
        taken = np.asarray(self.record.answered)[answered] - self._times[answered]
        in_time = taken[self._outcome[answered] == IN_TIME]
        wall_s = self.record.wall_s
        return {
            "scenario": self.scenario.name,
            "strategy": self.stack.strategy,
            "batching": self.stack.batching,
            "routing": self.stack.routing,
            "seed": self.scenario.seed,
            "devices": len(self.scenario.devices),
            **self._count(everything),
            "max_accuracy_drop_10s": self._drop(),
            "fluid_reference_accuracy": fluid_reference(self.scenario),
            "duration_s": float(self._times[-1]) if len(self._times) else 0.0,
            "median_latency_ms": float(np.median(in_time)) * 1000 if len(in_time) else None,
            "p99_latency_ms": float(np.quantile(in_time, 0.99)) * 1000 if len(in_time) else None,
            "wall_s": wall_s,
            "queries_per_wall_s": len(self._times) / wall_s if wall_s > 0 else None,
            "solves": len(solve_s),
            "total_solve_s": sum(solve_s),
            "max_solve_s": max(solve_s),
            "solves_cut_short": sum(allocation.status == "feasible" for allocation in allocations),
            "loads": sum(allocation.moves for allocation in allocations),
            "applications": {
                name: self._count(self._applications == index) for index, name in enumerate(self.scenario.applications)
            },
        }

    def _drop(self) -> float | None:
        """100 less the lowest accuracy of the consecutive 10-s windows after the first 20 s, as far as whole windows
        go by arrival; None where the run is too short. A window in which nothing was in time has no accuracy and shows
        in the violations alone."""
        if not len(self._times):
            return None
        # A window is whole where arrivals reach its last second.
        windows = int((self._times[-1] + 1 - SETTLED_S) // DROP_WINDOW_S)
        lowest = None
        for window in range(windows):
            start = SETTLED_S + window * DROP_WINDOW_S
            mask = (self._times >= start) & (self._times < start + DROP_WINDOW_S) & (self._outcome == IN_TIME)
            if mask.any():
                mean = float(self._accuracy[mask].mean())
                lowest = mean if lowest is None else min(lowest, mean)
        return None if lowest is None else 100.0 - lowest

    def _per_second(self) -> list[Second]:
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

    def write(self, folder: Path | str) -> Path:
        """Write ``summary.json``, ``per_second.csv`` and ``report.html`` into ``folder``, made where it is missing."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").write_text(json.dumps(self.summary, indent=2) + "\n")
        with (folder / "per_second.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["second", "arrived", "in_time", "late", "dropped", "effective_accuracy"])
            for s in self.per_second:
                accuracy = "" if s.effective_accuracy is None else f"{s.effective_accuracy:.6f}"
                lines.writerow([s.second, s.arrived, s.in_time, s.late, s.dropped, accuracy])
        (folder / "report.html").write_text(report(self.summary, self.per_second))
        return folder
