"""Sharing search: find devices to share between applications, and what they hold.

Free devices get the use that gains most; then the whole use of one device is exchanged for a better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from .device_counts import DeviceCounts, SharedDevice
from .knapsack import best_shared, most_shared
from .local_search import hill_climb

#: Table cells (slices x prices) that the search may evaluate, about 20 ms of work; unlike a clock it is deterministic.
EFFORT = 400_000


def use_free_devices(counts: DeviceCounts, periods: Sequence[float], min_gain: float) -> None:
    """Give each free device the use that gains most.

    This ends when none gains more than ``min_gain``. Gains diminish as devices are used, so earlier gains are bounds
    and only the largest is recomputed (lazy greedy; Minoux 1978).
    """
    free = counts.free()
    uses: list[tuple[float, int, float]] = [
        (-float("inf"), g, revisit_s) for g in range(len(free)) for revisit_s in (0.0, *periods)
    ]
    heapify(uses)
    while uses:
        _, g, revisit_s = heappop(uses)
        if free[g] <= 0:
            continue
        gain, use = _best_of_class(counts, g, revisit_s)
        if gain <= min_gain:
            continue
        if uses and -uses[0][0] > gain:
            heappush(uses, (-gain, g, revisit_s))
            continue
        _apply(counts, g, use)
        free[g] -= 1
        heappush(uses, (-gain, g, revisit_s))


def _best_of_class(counts: DeviceCounts, g: int, revisit_s: float) -> tuple[float, int | SharedDevice | None]:
    """Return the gain and the best use of one more device of group ``g``.

    The use is for this revisit period; 0: it is dedicated to the application returned.
    """
    if revisit_s:
        return best_shared(counts, g, revisit_s)
    gains = counts.gains()[:, g]
    q = int(gains.argmax())
    return float(gains[q]), q


def _apply(counts: DeviceCounts, g: int, use: int | SharedDevice) -> None:
    if isinstance(use, SharedDevice):
        counts.share(use)
    else:
        counts.dedicate(use, g)


class SharingSearch:
    """Search that exchanges one device's whole use for a better one.

    It goes on until nothing gains, and changes ``counts`` in place.

    Args:
        periods: revisit periods that shared devices may have, seconds.
        min_gain: smallest gain of an exchange, points/s.
        target: value of the counts at which the search ends.
        effort: table cells to evaluate.
    """

    def __init__(
        self, counts: DeviceCounts, periods: Sequence[float], min_gain: float, target: float, effort: int = EFFORT
    ):
        self._board, self._periods, self._min_gain, self._target = counts, periods, min_gain, target
        self._effort = effort

    def run(self) -> None:
        """Search until a round gains nothing, or a limit is reached.

        The limits are the effort and the target.
        """
        counts = self._board
        while not self._over():
            before = counts.value
            for g in range(len(counts.sizes)):
                for q in range(len(counts.dedicated)):
                    if counts.dedicated[q, g] and not self._over():
                        self._exchange_dedicated(g, q)
            for i in range(len(counts.shared) - 1, -1, -1):
                if not self._over():
                    self._exchange_shared(i)
            hill_climb(counts, self._min_gain, self._target)
            if counts.value - before <= self._min_gain:
                return

    def _over(self) -> bool:
        return self._effort <= 0 or self._board.value >= self._target

    def _exchange_dedicated(self, g: int, q: int) -> None:
        counts, before = self._board, self._board.value
        counts.dedicate(q, g, -1)
        use = self._better_use(g, before - counts.value + self._min_gain)
        if use is None:
            counts.dedicate(q, g)
        else:
            _apply(counts, g, use)

    def _exchange_shared(self, i: int) -> None:
        counts, before = self._board, self._board.value
        device = counts.unshare(i)
        use = self._better_use(device.group, before - counts.value + self._min_gain)
        if use is None:
            counts.share(device)
        else:
            _apply(counts, device.group, use)

    def _better_use(self, g: int, than: float) -> int | SharedDevice | None:
        """The best use of a device of group ``g`` that gains more than ``than``, or None."""
        best, use = than, None
        gain, q = _best_of_class(self._board, g, 0.0)
        if gain > best:
            best, use = gain, q
        for revisit_s in self._periods:
            self._effort -= self._board.options.slices(g, revisit_s).earns.size
            if most_shared(self._board, g, revisit_s) <= best:
                continue
            gain, shared = best_shared(self._board, g, revisit_s)
            if gain > best:
                best, use = gain, shared
        return use
