"""Contents of shared devices: the best ones at given gains.

A multiple-choice knapsack (at most one slice an application) in time, memory and residents, for several *searches* at
once: each is of the devices of a group with one revisit period. Partial contents are extended application by
application, all at once (a beam search). Those are dropped that cannot reach the best content found of their search, by
a dynamic program over what is left of time, and one over memory, with sizes rounded down to a grid, so that it bounds
every content; and those that gain no more than another with as much time left, where only time is limited. The beam's
width is limited, so that searches repeat exactly; only what it cuts off leaves the best content unproved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .device_counts import SharedDevice
from .group_options import SliceTable, slice_budget_s
from .groups import IdenticalDevices

#: Relative tolerance for sums of slices.
ROUNDING = 1e-9
#: Grid of the dynamic programs: parts of a slice budget, or of a device's memory.
GRID = 256
#: Partial contents kept for each application and search; beyond that the best content's value is bounded only.
WIDTH = 400
#: Steps by which prices of time are sought, to a fiftieth of the highest one.
GOLDEN_STEPS = 8
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class BestContent:
    value: float
    bound: float
    chosen: tuple[int, ...]


class ContentSearch:
    """Contents of devices of group ``g`` with one revisit period.

    Args:
        useful: indices of the slices that contents may have; None: all.

    Attributes:
        slices: indices into the table of the search's slices, by application. Gains, and contents, are in their order.
        uses: (resource x slice) shares of the slice budget, and of the device's memory.
        counted: residents are limited, to ``most``.
    """

    def __init__(
        self, g: int, revisit_s: float, table: SliceTable, max_resident: int | None, useful: Sequence[int] | None = None
    ):
        self.g, self.revisit_s, self.table = g, revisit_s, table
        self.slices = np.arange(len(table.slices)) if useful is None else np.array(useful, dtype=int)
        self.owner = table.owner[self.slices]
        self.uses = np.array([table.seconds, table.memory])[:, self.slices]
        owners = len(set(self.owner.tolist()))
        self.most = owners if max_resident is None else min(max_resident, owners)
        self.counted = self.most < owners

    def device(self, chosen: Sequence[int]) -> SharedDevice:
        table = self.table
        residents = tuple(
            (int(table.owner[j]), table.slices[j], table.earns[j]) for j in sorted(self.slices[list(chosen)].tolist())
        )
        return SharedDevice(self.g, self.revisit_s, residents)


class ContentSearches:
    """Several searches, which find their best contents at once.

    Gains are those of all searches' slices, one search after the other.

    Attributes:
        ends: by search, where its slices end.
    """

    def __init__(self, searches: Sequence[ContentSearch]):
        self.searches = searches
        sizes = [len(search.slices) for search in searches]
        self.ends = np.cumsum(sizes, dtype=int)
        self._first = self.ends - sizes
        self._of = np.repeat(np.arange(len(searches)), sizes)
        uses = np.concatenate([search.uses for search in searches], axis=1)
        #: time alone, where no search has slices with memory
        self._uses = uses if uses[1].any() else uses[:1]
        self._counted = np.array([search.counted for search in searches])
        self._most = np.array([search.most for search in searches])
        #: only time is limited
        self._simple = np.array([not (search.counted or search.uses[1].any()) for search in searches])
        owner = np.concatenate([search.owner for search in searches])
        new = (np.diff(owner, prepend=-1) != 0) | (np.diff(self._of, prepend=-1) != 0)
        #: the first slice of each search and application; and of each search, the first of these
        self._starts = np.nonzero(new)[0]
        self._segments = np.searchsorted(self._starts, self._first)
        self._arrange(owner)

    def _arrange(self, owner: np.ndarray) -> None:
        count, units = len(owner), np.arange(GRID + 1)
        filled = np.concatenate((self._uses, np.full((len(self._uses), 1), 2.0)), axis=1)
        sizes = np.minimum(np.floor(filled * GRID * (1 - ROUNDING)), GRID + 1).astype(int)
        self._items: list[np.ndarray] = []
        #: by application and resource: (search x slice x units) units left by the slice; the last one: it does not fit
        self._remaining: list[list[np.ndarray]] = []
        for q in sorted(set(owner.tolist())):
            mine = [np.nonzero((owner == q) & (self._of == k))[0] for k in range(len(self.searches))]
            items = np.full((len(mine), max(map(len, mine))), count)
            for k, some in enumerate(mine):
                items[k, : len(some)] = some
            self._items.append(items)
            left = [units - size[items][:, :, None] for size in sizes]
            self._remaining.append([np.where(one >= 0, one, GRID + 1) for one in left])
        self._filled = filled

    # --- bounds with a part of a slice ------------------------------------------------------------------------------

    def fluid(self, gains: np.ndarray) -> np.ndarray:
        """Return a quick bound by search, which no content exceeds.

        Only time counts, and one slice may be divided. It is the knapsack's Lagrangean bound at a price of time, which
        is sought by golden section.
        """
        low = np.zeros(len(self.ends))
        high = np.maximum(np.maximum.reduceat(gains / self._uses[0], self._first), 0.0)
        left, right = high - _GOLDEN * high, _GOLDEN * high
        at_left, at_right = self._at_price(left, gains), self._at_price(right, gains)
        for _ in range(GOLDEN_STEPS):
            lower = at_left < at_right
            low, high = np.where(lower, low, left), np.where(lower, right, high)
            new = np.where(lower, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
            at_new = self._at_price(new, gains)
            left, right = np.where(lower, new, right), np.where(lower, left, new)
            at_left, at_right = np.where(lower, at_new, at_right), np.where(lower, at_left, at_new)
        return np.minimum(at_left, at_right) * (1 + ROUNDING)

    def _at_price(self, price: np.ndarray, gains: np.ndarray) -> np.ndarray:
        best = np.maximum.reduceat(gains - price[self._of] * self._uses[0], self._starts)
        return np.add.reduceat(np.maximum(best, 0.0), self._segments) + price * (1 + ROUNDING)

    # --- the best contents ------------------------------------------------------------------------------------------

    def best(self, gains: np.ndarray, least: np.ndarray, which: Sequence[int]) -> list[BestContent]:
        """The content of the highest gain above ``least`` of each search in ``which``."""
        which = np.array(which, dtype=int)
        if not len(which):
            return []
        gain = np.append(gains, -np.inf)
        bounds = self._bounds(gain, which)
        top, dropped = least[which].astype(float), least[which].astype(float)
        # By partial content: its search's place in `which`, what it gained, what it leaves of resources, its residents.
        at = np.arange(len(which))
        gained, count = np.zeros(len(which)), np.zeros(len(which), dtype=int)
        left = np.full((len(self._uses), len(which)), 1.0 + ROUNDING)
        at = at[self._more(bounds[0], which, at, left, count) > top]
        gained, count, left = gained[at], count[at], left[:, at]
        paths = np.full((len(at), len(self._items)), -1)
        for i, items in enumerate(self._items):
            if not len(at):
                break
            parent, item, left = self._extended(gain, items[which], at, left, count, which)
            taken = item >= 0
            at, gained = at[parent], gained[parent] + np.where(taken, gain[item], 0.0)
            count = count[parent] + taken
            np.maximum.at(top, at, gained)
            most = gained + self._more(bounds[i + 1], which, at, left, count)
            kept = np.nonzero(most >= (top - ROUNDING * np.maximum(1.0, np.abs(top)))[at])[0]
            kept = self._undominated(kept, self._simple[which], at, gained, left)
            kept = _widest(kept, at, most, dropped)
            at, gained, left, count = at[kept], gained[kept], left[:, kept], count[kept]
            paths = paths[parent[kept]]
            paths[:, i] = item[kept]
        found = [BestContent(float(one), float(bound), ()) for one, bound in zip(least[which], dropped, strict=True)]
        order = np.lexsort((-gained, at))
        for state in order[np.diff(at[order], prepend=-1) != 0].tolist():
            k, value = int(at[state]), float(gained[state])
            if value > least[which[k]]:
                bound = max(value + ROUNDING * max(1.0, abs(value)), float(dropped[k]))
                chosen = [j - int(self._first[which[k]]) for j in paths[state].tolist() if j >= 0]
                found[k] = BestContent(value, bound, tuple(chosen))
        return found

    def _extended(
        self,
        gain: np.ndarray,
        items: np.ndarray,
        at: np.ndarray,
        left: np.ndarray,
        count: np.ndarray,
        which: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Extend each partial content by each slice that gains and fits.

        Each partial content is kept as it is, too.

        Returns:
            By new partial content: the index of the old one, the slice (-1: none), and what is left of resources.
        """
        mine = items[at]
        room = left[:, :, None] - self._filled[:, mine]
        fits = (room >= 0).all(axis=0) & (gain[mine] > 0)
        if self._counted.any():
            fits &= ~(self._counted[which[at]] & (count >= self._most[which[at]]))[:, None]
        parent, slot = np.nonzero(fits)
        everyone = np.arange(len(at))
        return (
            np.concatenate((everyone, parent)),
            np.concatenate((np.full(len(at), -1), mine[parent, slot])),
            np.concatenate((left, room[:, parent, slot]), axis=1),
        )

    def _more(
        self, bounds: list[np.ndarray], which: np.ndarray, at: np.ndarray, left: np.ndarray, count: np.ndarray
    ) -> np.ndarray:
        units = np.clip(np.floor(left * GRID * (1 + ROUNDING)).astype(int), 0, GRID)
        level = np.where(self._counted[which[at]], self._most[which[at]] - count, bounds[0].shape[1] - 1)
        more = bounds[0][at, level, units[0]]
        for bound, unit in zip(bounds[1:], units[1:], strict=True):
            more = np.minimum(more, bound[at, level, unit])
        return more

    def _undominated(
        self, kept: np.ndarray, simple: np.ndarray, at: np.ndarray, gained: np.ndarray, left: np.ndarray
    ) -> np.ndarray:
        one = simple[at[kept]]
        others, kept = kept[~one], kept[one]
        if not len(kept):
            return others
        kept = kept[np.lexsort((-gained[kept], -left[0][kept], at[kept]))]
        # Searches are set apart, so that each one's maximum begins anew.
        apart = gained[kept] + at[kept] * (gained[kept].max() + 1.0)
        best = np.maximum.accumulate(apart)
        return np.concatenate((others, kept[np.concatenate(([True], apart[1:] > best[:-1]))]))

    def _bounds(self, gain: np.ndarray, which: np.ndarray) -> list[list[np.ndarray]]:
        """The most that each application and those after it gain.

        By application and resource, it is by place in ``which``, residents left and grid units left.
        """
        counted = self._counted[which]
        levels = 1 + int(self._most[which][counted].max(initial=0))
        level = np.arange(min(1, levels - 1), levels)
        # Where residents are not limited, only the last level counts.
        before = np.where(counted[:, None], level - 1, level)
        row = (np.arange(len(which))[:, None] * levels + before) * (GRID + 2)
        after = [np.zeros((len(which), levels, GRID + 2)) for _ in self._uses]
        for one in after:
            one[:, :, -1] = -np.inf
        bounds = [after]
        for items, remaining in zip(reversed(self._items), reversed(self._remaining), strict=True):
            here = []
            more = gain[items[which]][:, :, None, None]
            for one, units in zip(after, remaining, strict=True):
                taken = (one.ravel()[row[:, None, :, None] + units[which][:, :, None, :]] + more).max(axis=1)
                new = one.copy()
                part = new[:, level[0] :, :-1]
                np.maximum(part, taken, out=part)
                here.append(new)
            bounds.append(here)
            after = here
        return bounds[::-1]


def _widest(kept: np.ndarray, at: np.ndarray, most: np.ndarray, dropped: np.ndarray) -> np.ndarray:
    """As many as the beam is wide, by search; ``dropped`` bounds what is cut off."""
    if len(kept) <= WIDTH:
        return kept
    kept = kept[np.lexsort((-most[kept], at[kept]))]
    place = np.arange(len(kept)) - np.searchsorted(at[kept], at[kept])
    over = kept[place == WIDTH]
    dropped[at[over]] = np.maximum(dropped[at[over]], most[over])
    return kept[place < WIDTH]


def fits(device: SharedDevice, group: IdenticalDevices) -> bool:
    slices, one = [slice_ for _, slice_, _ in device.residents], group.one
    return (
        sum(slice_.seconds for slice_ in slices) <= slice_budget_s(group, device.revisit_s) * (1 + ROUNDING)
        and (one.memory_bytes is None or sum(slice_.memory_bytes for slice_ in slices) <= one.memory_bytes)
        and (one.max_resident is None or len(slices) <= one.max_resident)
    )
