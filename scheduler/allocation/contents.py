"""Contents of a shared device: the best one at given gains, and all that gain at least so much.

A multiple-choice knapsack (at most one slice an application) in time, memory and residents, searched depth first. The
bound of each branch is a dynamic program over what is left of time, and one over memory, with sizes rounded down to a
grid, so that it holds for every content. Searches are bounded by steps, not by time, and repeat exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .device_counts import SharedDevice
from .group_options import SliceTable
from .knapsack import ROUNDING

#: Grid of the dynamic programs: parts of a slice budget, or of a device's memory.
GRID = 256
#: Steps of the search for the best content; beyond that its value is bounded only.
STEPS = 2_000


@dataclass(frozen=True, slots=True)
class BestContent:
    """``chosen``: indices into the slice table, empty where none was found. ``value``: what it gains, else the least
    asked for. ``bound``: no content gains more."""

    value: float
    bound: float
    chosen: tuple[int, ...]


class _Stopped(Exception):
    pass


class ContentSearch:
    """Contents of devices of group ``g`` with one revisit period. ``max_resident`` None: not limited."""

    def __init__(self, g: int, revisit_s: float, table: SliceTable, max_resident: int | None):
        self._g, self._revisit_s, self.table = g, revisit_s, table
        owners = sorted(set(table.owner.tolist()))
        self._items = [np.nonzero(table.owner == q)[0].tolist() for q in owners]
        self._most = len(owners) if max_resident is None else min(max_resident, len(owners))
        self._counted = self._most < len(owners)
        uses = [table.seconds] + ([table.memory] if table.memory.any() else [])
        self._uses = [use.tolist() for use in uses]
        self._sizes = [np.floor(use * GRID * (1 - ROUNDING)).astype(int).tolist() for use in uses]

    def device(self, chosen: tuple[int, ...]) -> SharedDevice:
        """The shared device with these slices."""
        table = self.table
        residents = tuple((int(table.owner[j]), table.slices[j], table.earns[j]) for j in sorted(chosen))
        return SharedDevice(self._g, self._revisit_s, residents)

    def best(self, gain: np.ndarray, least: float) -> BestContent:
        """The content of the highest gain above ``least``, up to :data:`STEPS` of search."""
        gains = gain.tolist()
        bounds = self._bounds(gains)
        value, chosen = least, ()

        def found(gained: float, content: tuple[int, ...]) -> float:
            nonlocal value, chosen
            value, chosen = gained, content
            return gained * (1 + ROUNDING)

        try:
            self._visit(gains, bounds, least, found, STEPS)
        except _Stopped:
            return BestContent(value, max(value, min(float(bound[0][-1, GRID]) for bound in bounds)), chosen)
        return BestContent(value, value * (1 + ROUNDING), chosen)

    def above(self, gain: np.ndarray, least: float, most: int, steps: int) -> list[tuple[int, ...]] | None:
        """All contents that gain at least ``least`` and that no further slice fits into; None where there are more
        than ``most``, or the search takes more than ``steps``."""
        gains = gain.tolist()
        contents: list[tuple[int, ...]] = []

        def found(_gained: float, content: tuple[int, ...]) -> float:
            if not self._room_for_more(content):
                contents.append(content)
                if len(contents) > most:
                    raise _Stopped
            return least

        try:
            self._visit(gains, self._bounds(gains), least, found, steps, unpaid=True)
        except _Stopped:
            return None
        return contents

    def _room_for_more(self, content: tuple[int, ...]) -> bool:
        if len(content) >= self._most:
            return False
        left = [1.0 + ROUNDING - sum(use[j] for j in content) for use in self._uses]
        taken = set(content)
        return any(
            all(use[j] <= room for use, room in zip(self._uses, left, strict=True))
            for items in self._items
            if taken.isdisjoint(items)
            for j in items
        )

    def _bounds(self, gains: list[float]) -> list[list[np.ndarray]]:
        """By resource and application: the most that it and those after it gain, by residents and grid units left."""
        shift = int(self._counted)
        bounds = []
        for sizes in self._sizes:
            after = np.zeros((self._most + 1 if shift else 1, GRID + 1))
            rows = [after]
            for items in reversed(self._items):
                here = after.copy()
                for j in items:
                    if gains[j] > 0 and sizes[j] <= GRID:
                        size = sizes[j]
                        part = here[shift:, size:]
                        np.maximum(part, after[: len(after) - shift, : GRID + 1 - size] + gains[j], out=part)
                rows.append(here)
                after = here
            bounds.append(rows[::-1])
        return bounds

    def _visit(
        self,
        gains: list[float],
        bounds: list[list[np.ndarray]],
        least: float,
        found: Callable[[float, tuple[int, ...]], float],
        steps: int,
        unpaid: bool = False,
    ) -> None:
        """Call ``found`` with each content that gains more than ``least``, which it returns anew.

        ``unpaid``: slices that gain nothing count, too.

        Raises:
            _Stopped: after ``steps``.
        """
        resources = range(len(self._uses))
        best_first = [sorted(items, key=lambda j: -gains[j]) for items in self._items]
        chosen: list[int] = []

        def visit(i: int, gained: float, left: list[float], units: list[int]) -> None:
            nonlocal least, steps
            steps -= 1
            if steps < 0:
                raise _Stopped
            count = self._most - len(chosen) if self._counted else 0
            if gained + min(float(bounds[r][i][count, units[r]]) for r in resources) <= least:
                return
            if i == len(best_first):
                least = found(gained, tuple(chosen))
                return
            if len(chosen) < self._most:
                for j in best_first[i]:
                    if gains[j] <= 0 and not unpaid:
                        break
                    room = [left[r] - self._uses[r][j] for r in resources]
                    if min(room) >= 0:
                        chosen.append(j)
                        visit(i + 1, gained + gains[j], room, [max(units[r] - self._sizes[r][j], 0) for r in resources])
                        chosen.pop()
            visit(i + 1, gained, left, units)

        visit(0, 0.0, [1.0 + ROUNDING for _ in resources], [GRID for _ in resources])
