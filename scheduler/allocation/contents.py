"""Contents of a shared device: the best one at given gains.

A multiple-choice knapsack (at most one slice an application) in time, memory and residents. Partial contents are
extended application by application, all at once (a beam search). Those are dropped that cannot reach the best content
found, by a dynamic program over what is left of time, and one over memory, with sizes rounded down to a grid, so that
it bounds every content; and those that gain no more than another with as much time left, where only time is limited.
The beam's width is limited, so that searches repeat exactly; only what it cuts off leaves the best content unproved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .device_counts import SharedDevice
from .group_options import SliceTable
from .knapsack import ROUNDING

#: Grid of the dynamic programs: parts of a slice budget, or of a device's memory.
GRID = 256
#: Partial contents kept for each application; beyond that the best content's value is bounded only.
WIDTH = 400


@dataclass(frozen=True, slots=True)
class BestContent:
    """The best content that a search found, and a bound.

    Attributes:
        value: gained by the content; where none was found, the least asked for.
        bound: no content gains more.
        chosen: indices into the search's slices, empty where none was found.
    """

    value: float
    bound: float
    chosen: tuple[int, ...]


class ContentSearch:
    """Contents of devices of group ``g`` with one revisit period.

    Args:
        max_resident: most residents of a device; None: not limited.
        useful: indices of the slices that contents may have; None: all.

    Attributes:
        slices: indices into the table of the search's slices. Gains, and contents, are in their order.
        owner: their applications.
    """

    def __init__(
        self,
        g: int,
        revisit_s: float,
        table: SliceTable,
        max_resident: int | None,
        useful: Sequence[int] | None = None,
    ):
        self.g, self.revisit_s, self.table = g, revisit_s, table
        self.slices = np.arange(len(table.slices)) if useful is None else np.array(useful, dtype=int)
        self.owner = table.owner[self.slices]
        self._items = [np.nonzero(self.owner == q)[0] for q in sorted(set(self.owner.tolist()))]
        self._most = len(self._items) if max_resident is None else min(max_resident, len(self._items))
        self._counted = self._most < len(self._items)
        uses = [table.seconds] + ([table.memory] if table.memory.any() else [])
        self._uses = np.array([use[self.slices] for use in uses])
        units = np.arange(GRID + 1)
        sizes = np.minimum(np.floor(self._uses * GRID * (1 - ROUNDING)), GRID + 1).astype(int)
        #: by resource and application: (slice x units) index of the units left by the slice; the last one: none.
        self._remaining = [
            [np.where(units >= size[mine][:, None], units - size[mine][:, None], GRID + 1) for mine in self._items]
            for size in sizes
        ]

    def device(self, chosen: Sequence[int]) -> SharedDevice:
        """The shared device with these slices."""
        table = self.table
        residents = tuple(
            (int(table.owner[j]), table.slices[j], table.earns[j]) for j in sorted(self.slices[list(chosen)].tolist())
        )
        return SharedDevice(self.g, self.revisit_s, residents)

    def best(self, gain: np.ndarray, least: float) -> BestContent:
        """The content of the highest gain above ``least``."""
        bounds = self._bounds(gain)
        gained, count = np.zeros(1), np.zeros(1, dtype=int)
        left = np.full((len(self._uses), 1), 1.0 + ROUNDING)
        top = dropped = least
        if self._more(bounds, 0, left, count)[0] <= least:
            return BestContent(least, least, ())
        paths = np.full((1, len(self._items)), -1)
        for i, items in enumerate(self._items):
            parent, item, left = self._extended(gain, items, left, count)
            taken = item >= 0
            gained = gained[parent] + np.where(taken, gain[item], 0.0)
            count = count[parent] + taken
            top = max(top, float(gained.max()))
            most = gained + self._more(bounds, i + 1, left, count)
            kept = np.nonzero(most >= top - ROUNDING * max(1.0, abs(top)))[0]
            if not len(kept):
                return BestContent(least, least, ())
            kept = self._undominated(kept, gained, left)
            if len(kept) > WIDTH:
                kept = kept[np.argsort(-most[kept], kind="stable")]
                dropped = max(dropped, float(most[kept[WIDTH]]))
                kept = kept[:WIDTH]
            gained, left, count = gained[kept], left[:, kept], count[kept]
            paths = paths[parent[kept]]
            paths[:, i] = item[kept]
        best = int(gained.argmax())
        if gained[best] <= least:
            return BestContent(least, dropped, ())
        value = float(gained[best])
        bound = max(value + ROUNDING * max(1.0, abs(value)), dropped)
        return BestContent(value, bound, tuple(int(j) for j in paths[best] if j >= 0))

    def _extended(
        self, gain: np.ndarray, items: np.ndarray, left: np.ndarray, count: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Extend each partial content by each slice that gains and fits.

        Each partial content is kept as it is, too.

        Returns:
            By new partial content: the index of the old one, the slice (-1: none), and what is left of resources.
        """
        items = items[gain[items] > 0]
        room = left[:, :, None] - self._uses[:, None, items]
        fits = (room >= 0).all(axis=0)
        if self._counted:
            fits &= (count < self._most)[:, None]
        parent, which = np.nonzero(fits)
        everyone = np.arange(left.shape[1])
        return (
            np.concatenate((everyone, parent)),
            np.concatenate((np.full(len(everyone), -1), items[which])),
            np.concatenate((left, room[:, parent, which]), axis=1),
        )

    def _more(self, bounds: list[list[np.ndarray]], i: int, left: np.ndarray, count: np.ndarray) -> np.ndarray:
        """The most that application ``i`` and those after it add to each partial content."""
        units = np.clip(np.floor(left * GRID * (1 + ROUNDING)).astype(int), 0, GRID)
        residents = self._most - count if self._counted else np.zeros(len(count), dtype=int)
        return np.min([bound[i][residents, unit] for bound, unit in zip(bounds, units, strict=True)], axis=0)

    def _undominated(self, kept: np.ndarray, gained: np.ndarray, left: np.ndarray) -> np.ndarray:
        if len(left) > 1 or self._counted:
            return kept
        kept = kept[np.lexsort((-gained[kept], -left[0][kept]))]
        best = np.maximum.accumulate(gained[kept])
        return kept[np.concatenate(([True], gained[kept][1:] > best[:-1]))]

    def _bounds(self, gain: np.ndarray) -> list[list[np.ndarray]]:
        """Return the most that each application and those after it gain.

        Returns:
            By resource and application, this gain by residents and grid units left.
        """
        bounds = []
        for remaining in self._remaining:
            after = np.zeros((self._most + 1 if self._counted else 1, GRID + 2))
            after[:, -1] = -np.inf
            rows = [after]
            for items, units in zip(reversed(self._items), reversed(remaining), strict=True):
                before = after[:-1] if self._counted else after
                taken = (before[:, units] + gain[items][:, None]).max(axis=1)
                here = after.copy()
                part = here[1:, :-1] if self._counted else here[:, :-1]
                np.maximum(part, taken, out=part)
                rows.append(here)
                after = here
            bounds.append(rows[::-1])
        return bounds
