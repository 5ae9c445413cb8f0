"""Exchanges: each device in turn gets its best use, given what all others do.

Given the others, applications do not compete (:mod:`.device_counts`), so that the best content of one device is a
knapsack (:mod:`.contents`), which is solved exactly. Plans start from the relaxation, rounded at random by a seed:
what it wants of each group's devices decides how likely they get it.
"""

from __future__ import annotations

import numpy as np

from .columns import AROUND, SEED, Program
from .contents import BestContent, ContentSearch, ContentSearches
from .device_counts import DeviceCounts, SharedDevice
from .solver import Budget, time_ran_out

#: Least gain of an exchange, in points, as a share of the weighted demand: rounding gains less.
GAIN = 1e-6
#: Slices priced for exchanges (1 to 2 s of work).
EXCHANGED = 400_000
#: Tolerance of whole numbers.
WHOLE = 1e-6


class _Group:
    """Searches of a group's contents; of all slices, earnings and applications."""

    def __init__(self, searches: list[ContentSearch]) -> None:
        self.searches = searches
        self.together = ContentSearches(searches) if searches else None
        self.earns = np.concatenate([s.table.earns[s.slices] for s in searches]) if searches else np.zeros((0, 1))
        self.owner = np.concatenate([s.owner for s in searches]) if searches else np.zeros(0, dtype=int)


class Exchanges:
    """``work``: slices that may still be priced; below 0 nothing is exchanged."""

    def __init__(self, program: Program, budget: Budget, work: int = EXCHANGED):
        self._program, self.work, self._budget = program, work, budget
        self._rng = np.random.default_rng(SEED)
        self._empty = DeviceCounts(program.options)
        self._rounded_from: list[float] | None = None
        self._groups = [_Group([s for s in program.searches if s.g == g]) for g in range(len(program.options.groups))]
        #: by group, least gain and gains of its slices: the best content of each search that may have one
        self._known: dict[tuple[int, float, bytes], list[tuple[ContentSearch, BestContent]]] = {}

    def improve(self, counts: DeviceCounts) -> None:
        """Exchange until no device has a better use, or work or time are spent."""
        min_gain = GAIN * self._program.total
        failed = 0
        while self.work > 0:
            for g, free in enumerate(counts.free().tolist()):
                for _ in range(free):
                    if not self._use(counts, g, min_gain):
                        break
            # Devices of the same use are tried once.
            dedicated = zip(*(one.tolist() for one in np.nonzero(counts.dedicated)), strict=True)
            uses = [*dedicated, *{id(device): device for device in counts.shared}.values()]
            for use in uses:
                if failed >= len(uses):
                    return
                if self._budget.left() <= 0:
                    time_ran_out()
                    return
                failed = 0 if self._exchange(counts, use, min_gain) else failed + 1
            if not uses:
                return

    def _exchange(self, counts: DeviceCounts, use: SharedDevice | tuple[int, int], min_gain: float) -> bool:
        before = counts.value
        if isinstance(use, SharedDevice):
            counts.unshare(counts.shared.index(use))
            if self._use(counts, use.group, before - counts.value + min_gain):
                return True
            counts.share(use)
        else:
            counts.dedicate(*use, -1)
            if self._use(counts, use[1], before - counts.value + min_gain):
                return True
            counts.dedicate(*use)
        return False

    def _use(self, counts: DeviceCounts, g: int, least: float) -> bool:
        best, use = least, None
        if self.work <= 0:
            return False
        gains = counts.gains(g)
        q = int(gains.argmax())
        if gains[q] > best:
            best, use = float(gains[q]), q
        for search, content in self._best_contents(counts, g, best):
            if content.chosen and content.value > best:
                best, use = content.value, search.device(content.chosen)
        if isinstance(use, SharedDevice):
            counts.share(use)
        elif use is not None:
            counts.dedicate(use, g)
        return use is not None

    def _best_contents(self, counts: DeviceCounts, g: int, best: float) -> list[tuple[ContentSearch, BestContent]]:
        group = self._groups[g]
        self.work -= AROUND
        if not group.searches:
            return []
        gains = (counts.table[group.owner] + group.earns).min(axis=1) - counts.utility()[group.owner]
        # Different starts often lead to the same plan, and then to the same exchanges.
        key = g, best, gains.tobytes()
        if key not in self._known:
            fluid = group.together.fluid(gains)
            which = np.nonzero(fluid > best)[0]
            found = group.together.best(gains, np.full(len(fluid), best), which)
            self._known[key] = [(group.searches[k], content) for k, content in zip(which, found, strict=True)]
            # What is known costs nothing more.
            self.work -= len(group.owner) + sum(len(group.searches[k].slices) for k in which)
        return self._known[key]

    def rounded(self) -> DeviceCounts:
        """The relaxation rounded: whole devices as it has them, and the rest drawn."""
        counts = self._empty.copy()
        dedicated = np.zeros_like(counts.dedicated)
        shared: list[SharedDevice] = []
        for g, (uses, whole, rest) in enumerate(self._relaxed()):
            chosen, left = list(whole), rest.copy()
            while len(chosen) < counts.sizes[g] and left.sum() > WHOLE:
                chances = (left / left.sum()).cumsum()
                i = int((chances / chances[-1]).searchsorted(self._rng.random(), side="right"))
                chosen.append(uses[i])
                left[i] = 0.0
            for use in chosen[: counts.sizes[g]]:
                if isinstance(use, SharedDevice):
                    shared.append(use)
                else:
                    dedicated[use, g] += 1
        counts.set(dedicated, shared)
        return counts

    def _relaxed(self) -> list[tuple[list[SharedDevice | int], list[SharedDevice | int], np.ndarray]]:
        """By group: the relaxation's uses, those of whole devices, what is left of each."""
        program, values = self._program, self._program.values
        if self._rounded_from is not values:
            self._rounded_from, self._uses = values, []
            found: list[list[tuple[SharedDevice | int, float]]] = [[] for _ in program.options.groups]
            for (q, g), column in program.dedicated.items():
                found[g].append((q, values[column]))
            for column, device in program.contents:
                found[device.group].append((device, values[column] if column < len(values) else 0.0))
            for mine in found:
                mine = [(use, value) for use, value in mine if value > WHOLE]
                whole = [use for use, value in mine for _ in range(int(value + WHOLE))]
                rest = np.array([max(value - int(value + WHOLE), 0.0) for _, value in mine])
                self._uses.append(([use for use, _ in mine], whole, rest))
        return self._uses
