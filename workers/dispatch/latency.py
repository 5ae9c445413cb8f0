"""Latency of any batch size, from a profile of some sizes.

It is linear between profiled sizes, and goes in pieces beyond the largest.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class LatencyModel:
    """Seconds that a batch takes.

    Args:
        points: (batch, seconds) pairs, at least one, in any order; batches >= 1, seconds > 0 and finite. They need not
            rise with the batch: measured profiles sometimes do not.
        interpolate: linear between profiled sizes; False: a size between two costs what the larger costs (padding).

    Beyond the largest profiled size the work is done in pieces of that size, as the executor does it.

    Raises:
        ValueError: the points are not such pairs.
    """

    __slots__ = ("_batches", "_ceiling", "_interpolate", "_least", "_seconds", "_table")

    def __init__(self, points: Sequence[tuple[int, float]], interpolate: bool = True):
        if not points:
            raise ValueError("points: at least one (batch, seconds) pair is needed")
        ordered = sorted(points)
        # Written so that NaN is refused too.
        if ordered[0][0] < 1 or not all(0 < s < math.inf for _, s in ordered):
            raise ValueError("points: batches must be at least 1 and seconds above 0 and finite")
        if len({b for b, _ in ordered}) != len(ordered):
            raise ValueError("points: each batch size may appear once")
        self._batches = [b for b, _ in ordered]
        self._seconds = [s for _, s in ordered]
        self._interpolate = interpolate
        # Decisions are taken per query: one list look-up each, not a search.
        self._table = [0.0] + [self._between(rows) for rows in range(1, self._batches[-1] + 1)]
        self._ceiling = list(accumulate(self._table, max))
        self._least = min(self._seconds)

    @property
    def largest(self) -> int:
        return self._batches[-1]

    @property
    def least(self) -> float:
        """Seconds of the quickest batch of any size."""
        return self._least

    def _between(self, rows: int) -> float:
        i = bisect_left(self._batches, rows)
        if self._batches[i] == rows or not self._interpolate:
            return self._seconds[i]
        if i == 0:
            return self._seconds[0]
        b0, b1 = self._batches[i - 1], self._batches[i]
        s0, s1 = self._seconds[i - 1], self._seconds[i]
        return s0 + (s1 - s0) * (rows - b0) / (b1 - b0)

    def seconds(self, rows: int) -> float:
        table = self._table
        if rows < len(table):
            return table[rows]
        pieces, rest = divmod(rows, self._batches[-1])
        return pieces * table[-1] + table[rest]

    def ceiling(self, rows: int) -> float:
        """The most seconds that any batch of up to ``rows`` rows takes; a smaller batch may be slower."""
        if rows < len(self._ceiling):
            return self._ceiling[rows]
        pieces, rest = divmod(rows, self._batches[-1])
        return pieces * self._ceiling[-1] + self._ceiling[rest]
