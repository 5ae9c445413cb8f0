"""Devices that the counts strand are shared: free devices get the use that gains most, and uses are exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from .device_counts import Board, Shared
from .knapsack import best_shared, most_shared
from .local_search import climb

#: Table cells (turns x prices) that exchanges may look through: some 20 ms of work. Unlike a clock it ends a search at
#: the same point each time.
EFFORT = 400_000


def fill(board: Board, gaps: Sequence[float], least: float) -> None:
    """Give each free device the use that gains most, until none gains more than ``least``.

    A use gains less the more is in use already, so that gains found earlier bound those of now, and only the largest
    needs to be found anew.
    """
    free = board.free()
    uses: list[tuple[float, int, float]] = [
        (-float("inf"), g, gap_s) for g in range(len(free)) for gap_s in (0.0, *gaps)
    ]
    heapify(uses)
    while uses:
        _, g, gap_s = heappop(uses)
        if free[g] <= 0:
            continue
        gain, use = _best_of_class(board, g, gap_s)
        if gain <= least:
            continue
        if uses and -uses[0][0] > gain:
            heappush(uses, (-gain, g, gap_s))
            continue
        _apply(board, g, use)
        free[g] -= 1
        heappush(uses, (-gain, g, gap_s))


def _best_of_class(board: Board, g: int, gap_s: float) -> tuple[float, int | Shared | None]:
    """The best use of one more device of group ``g`` with this turn gap; 0: dedicated to the application returned."""
    if gap_s:
        return best_shared(board, g, gap_s)
    gains = board.gains()[:, g]
    q = int(gains.argmax())
    return float(gains[q]), q


def _apply(board: Board, g: int, use: int | Shared) -> None:
    if isinstance(use, Shared):
        board.share(use)
    else:
        board.dedicate(use, g)


class Refinement:
    """Exchanges of one device's whole use for the best other one, on a board that it changes.

    Args:
        gaps: turn gaps that shared devices may have.
        least: what an exchange must gain at least.
        enough: the value of the board at which there is nothing more to seek.
        effort: table cells to look through.
    """

    def __init__(self, board: Board, gaps: Sequence[float], least: float, enough: float, effort: int = EFFORT):
        self._board, self._gaps, self._least, self._enough = board, gaps, least, enough
        self._effort = effort

    def run(self) -> None:
        """Until a round brings nothing, all effort is spent, or there is nothing more to seek."""
        board = self._board
        while not self._over():
            before = board.value
            for g in range(len(board.sizes)):
                for q in range(len(board.dedicated)):
                    if board.dedicated[q, g] and not self._over():
                        self._exchange_dedicated(g, q)
            for i in range(len(board.shared) - 1, -1, -1):
                if not self._over():
                    self._exchange_shared(i)
            climb(board, self._least, self._enough)
            if board.value - before <= self._least:
                return

    def _over(self) -> bool:
        return self._effort <= 0 or self._board.value >= self._enough

    def _exchange_dedicated(self, g: int, q: int) -> None:
        board, before = self._board, self._board.value
        board.dedicate(q, g, -1)
        use = self._better_use(g, before - board.value + self._least)
        if use is None:
            board.dedicate(q, g)
        else:
            _apply(board, g, use)

    def _exchange_shared(self, i: int) -> None:
        board, before = self._board, self._board.value
        device = board.unshare(i)
        use = self._better_use(device.group, before - board.value + self._least)
        if use is None:
            board.share(device)
        else:
            _apply(board, device.group, use)

    def _better_use(self, g: int, than: float) -> int | Shared | None:
        """What a device of group ``g`` should do, if that gains more than ``than``."""
        best, use = than, None
        gain, q = _best_of_class(self._board, g, 0.0)
        if gain > best:
            best, use = gain, q
        for gap_s in self._gaps:
            self._effort -= self._board.menu.turns(g, gap_s).earns.size
            if most_shared(self._board, g, gap_s) <= best:
                continue
            gain, shared = best_shared(self._board, g, gap_s)
            if gain > best:
                best, use = gain, shared
        return use
