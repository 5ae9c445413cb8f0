"""Exchanges: each device in turn gets its best use, given what all others do.

Given the others, applications do not compete (:mod:`.device_counts`), so that the best content of one device is a
knapsack (:mod:`.contents`), which is solved exactly. Plans start from the relaxation, rounded at random by a seed:
what it wants of each group's devices decides how likely they get it.
"""

from __future__ import annotations

import numpy as np

from .column_generation import AROUND, WHOLE, Relaxed
from .contents import BestContent
from .device_counts import DeviceCounts, SharedDevice
from .local_search import hill_climb
from .milp_program import SEED
from .solver import Budget, time_ran_out

#: Least gain of an exchange, in points, as a share of the weighted demand: rounding gains less.
GAIN = 1e-6

#: By group, uses of devices, contents or applications, and how many devices have them.
Wanted = list[list[tuple[int | SharedDevice, float]]]


class Exchanges:
    """Exchanges over the contents of a relaxation.

    Attributes:
        work: slices that may still be priced; below 0 nothing is exchanged.
    """

    def __init__(self, relaxed: Relaxed, work: int, budget: Budget):
        self._relaxed, self.work, self._budget = relaxed, work, budget
        self._rng = np.random.default_rng(SEED)
        tables = [search.table.earns[search.slices] for search in relaxed.searches]
        self._earns = np.concatenate(tables) if tables else np.zeros((0, 1))
        owners = [search.owner for search in relaxed.searches]
        self._owner = np.concatenate(owners) if owners else np.zeros(0, dtype=int)
        of = [np.full(len(search.slices), search.g) for search in relaxed.searches]
        groups = np.concatenate(of) if of else np.zeros(0, dtype=int)
        self._slices = [np.nonzero(groups == g)[0] for g in range(len(relaxed.program.options.groups))]
        #: by group, least gain and gains of its slices: the best content of each search that may have one
        self._known: dict[tuple[int, float, bytes], list[tuple[int, BestContent]]] = {}

    def improve(self, counts: DeviceCounts) -> None:
        """Exchange until no device has a better use, or work or time are spent."""
        min_gain = GAIN * self._relaxed.program.total
        hill_climb(counts, min_gain)
        failed = 0
        while self.work > 0:
            for g, free in enumerate(counts.free().tolist()):
                for _ in range(free):
                    self._use(counts, g, min_gain)
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
        """Give a device of this use a better one; returns whether one was found.

        Args:
            min_gain: least gain.
        """
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
        """Give a free device the use that gains most; returns whether one was found.

        Args:
            g: the device's group.
            least: what it must gain more than.
        """
        best, use = least, None
        if self.work <= 0:
            return False
        gains = counts.gains()[:, g]
        q = int(gains.argmax())
        if gains[q] > best:
            best, use = float(gains[q]), q
        best, use = self._best_content(counts, g, best, use)
        if isinstance(use, SharedDevice):
            counts.share(use)
        elif use is not None:
            counts.dedicate(use, g)
        return use is not None

    def _best_content(
        self, counts: DeviceCounts, g: int, best: float, use: int | SharedDevice | None
    ) -> tuple[float, int | SharedDevice | None]:
        mine, contents = self._slices[g], self._relaxed.contents
        self.work -= AROUND + len(mine)
        if contents is None or not len(mine):
            return best, use
        owner = self._owner[mine]
        gains = np.full(len(self._owner), -np.inf)
        gains[mine] = (counts.table[owner] + self._earns[mine]).min(axis=1) - counts.utility()[owner]
        # Different starts often lead to the same plan, and then to the same exchanges.
        key = g, best, gains[mine].tobytes()
        if key not in self._known:
            fluid = contents.fluid(gains)
            which = np.nonzero(fluid > best)[0]
            found = contents.best(gains, np.full(len(fluid), best), which)
            self._known[key] = list(zip(which.tolist(), found, strict=True))
        for k, one in self._known[key]:
            self.work -= len(self._relaxed.searches[k].slices)
            if one.chosen and one.value > best:
                best, use = one.value, self._relaxed.searches[k].device(one.chosen)
        return best, use

    def rounded(self, wanted: Wanted) -> DeviceCounts:
        """The relaxation rounded: whole devices as it has them, and the rest drawn."""
        counts = DeviceCounts(self._relaxed.program.options)
        dedicated = np.zeros_like(counts.dedicated)
        shared: list[SharedDevice] = []
        for g, uses in enumerate(wanted):
            whole = [int(value + WHOLE) for _, value in uses]
            rest = np.array([max(value - n, 0.0) for (_, value), n in zip(uses, whole, strict=True)])
            chosen = [use for (use, _), n in zip(uses, whole, strict=True) for _ in range(n)]
            while len(chosen) < counts.sizes[g] and rest.sum() > WHOLE:
                i = int(self._rng.choice(len(rest), p=rest / rest.sum()))
                chosen.append(uses[i][0])
                rest[i] = 0.0
            for use in chosen[: counts.sizes[g]]:
                if isinstance(use, SharedDevice):
                    shared.append(use)
                else:
                    dedicated[use, g] += 1
        counts.set(dedicated, shared)
        return counts


def wanted(relaxed: Relaxed) -> Wanted:
    """The uses that the relaxation wants."""
    program, values = relaxed.program, relaxed.of_columns()
    found: Wanted = [[] for _ in program.options.groups]
    for (q, g), column in program.dedicated.items():
        found[g].append((q, values[column]))
    for column, device in program.contents:
        found[device.group].append((device, values[column]))
    return [[(use, value) for use, value in uses if value > WHOLE] for uses in found]
