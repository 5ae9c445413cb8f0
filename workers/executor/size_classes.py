"""Choice of an application's size classes to measure, and equal ones. Pure.

The largest class comes first, for every query may count on it, then the smallest; then those between classes whose
latencies differ. Classes between two that take the same time take it too, and classes that there was no time to measure
count as the next larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from workers.protocol.specs import ProfilePoint

#: medians that differ by less than this part are the same
ALIKE = 0.1
#: a batch holds its device longer than it runs by about this many seconds; smaller differences do not count
AROUND_S = 0.0006


class SizeClasses:
    """The classes of one variant on one device while they are measured."""

    def __init__(self, sizes: Sequence[int]):
        self._sizes = tuple(sizes) or (0,)
        self._measured: dict[int, tuple[ProfilePoint, ...]] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def next(self) -> int | None:
        """Return the class to measure next (0: the largest); None: nothing is left."""
        last = len(self._sizes) - 1
        if last not in self._measured:
            return 0
        if 0 not in self._measured:
            return self._sizes[0]
        measured = sorted(self._measured)
        gaps = [
            (high - low, low)
            for low, high in pairwise(measured)
            if high - low > 1 and not alike(self._measured[low], self._measured[high])
        ]
        if not gaps:
            return None
        width, low = max(gaps)
        return self._sizes[low + width // 2]

    def add(self, size: int, points: Sequence[ProfilePoint]) -> None:
        """A class was measured: its latencies by batch, at least one."""
        place = self._sizes.index(size) if size else len(self._sizes) - 1
        self._measured[place] = tuple(msgspec.structs.replace(point, size=size) for point in points)

    def points(self) -> tuple[ProfilePoint, ...]:
        """Return the profile: the largest class, then those that differ from the next."""
        last = len(self._sizes) - 1
        largest = distinct = self._measured.get(last, ())
        smaller: list[tuple[ProfilePoint, ...]] = []
        for place in sorted(self._measured.keys() - {last}, reverse=True):
            # Held against what is kept, not against its neighbour: many small steps make a large one.
            if not alike(self._measured[place], distinct):
                distinct = self._measured[place]
                smaller.append(distinct)
        return (*largest, *(point for some in reversed(smaller) for point in some))


def alike(some: Sequence[ProfilePoint], others: Sequence[ProfilePoint]) -> bool:
    """Return True if batches take the same time in both classes, as far as measured."""
    medians = {point.batch: point.p50_s + AROUND_S for point in others}
    pairs = [(point.p50_s + AROUND_S, medians[point.batch]) for point in some if point.batch in medians]
    return all(max(pair) <= (1.0 + ALIKE) * min(pair) for pair in pairs)
