"""What a device can run for an application, and which of it is worth its time at what pressure. Pure.

The value of serving a row with a variant is its accuracy (times the application's weight) less the price of the
device time that it takes. The price rises exponentially with pressure, the share of the SLO for which devices are
booked already: while devices are idle time is all but free and the most accurate variant wins, and the more work is
booked the more accuracy a second must bring. Neighbouring variants trade from less than ten to more than a thousand
points of accuracy for a second, so a scale of factors is the one that fits them all. (The same trade as drift-plus-
penalty control makes; Neely, "Stochastic Network Optimization", 2010, Chapter 4.)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from workers.batching.latency import LatencyModel

INF = math.inf
#: steps between no pressure and a full SLO of booked work
LEVELS = 64
#: points of accuracy that a second of an idle device must bring
FREE_PRICE = 0.5
#: the price of a second is multiplied by e to the power of pressure * (STEEPNESS + CURVATURE * pressure): gently while
#: devices are hardly booked, so that accuracy is not given away, and so steeply towards full pressure that backlogs
#: do not build up (a price too flat there serves worse and less: what is accurate is slow, and keeps pressure high)
STEEPNESS = 9.0
CURVATURE = 8.0
#: a batch is worth waiting for only if a row of it costs less than this part of what it would cost now
WORTH_WAITING = 0.9
#: rows are cheap if one costs no more than so many times what it costs in the best batch
CHEAP = 1.02


class Option:
    """A variant that a device may run for an application.

    Args:
        variant: what the caller calls it.
        accuracy: normalised percent. ``weight``: of the application.
        latency: seconds by rows, as expected; ``max_rows``: the most that one batch may take.
        at_most: batches of smaller queries take less, which says nothing about the device.
        planned: part of the plan, with its ``rate`` in items/s and ``turn_rows``, the most rows that the plan gives it
            in one batch; else loaded beside the plan. Late binding does not ask for it.
        bound: seconds by rows that hold for nearly all batches (a high quantile); None: ``latency``.
    """

    def __init__(
        self,
        variant: Hashable,
        accuracy: float,
        latency: LatencyModel,
        max_rows: int,
        weight: float = 1.0,
        at_most: bool = False,
        planned: bool = True,
        rate: float = 0.0,
        turn_rows: int = 0,
        bound: LatencyModel | None = None,
    ) -> None:
        self.variant = variant
        self.accuracy = accuracy
        self.latency = latency
        self.bound = latency if bound is None else bound
        self.planned = planned
        self.rate = rate
        self.turn_rows = turn_rows or max_rows
        self.at_most = at_most
        self.worth = accuracy * weight
        self.max_rows = max_rows
        #: seconds by rows, up to ``max_rows``
        self.by_rows = [latency.seconds(rows) for rows in range(max_rows + 1)]
        each = [self.by_rows[rows] / rows for rows in range(1, max_rows + 1)]
        #: seconds a row in the fastest batch
        self.cost = min(each)
        #: by rows: whether some larger batch makes a row so much cheaper that waiting for company may pay
        least, improves = INF, []
        for seconds in reversed(each):
            improves.append(least < WORTH_WAITING * seconds)
            least = min(least, seconds)
        self.improves = [True, *reversed(improves)]
        #: by rows: the smallest batch, up to so many, in which a row is cheap compared with the best of these
        self.thrifty = [0]
        for rows in range(1, max_rows + 1):
            cheap = CHEAP * min(each[:rows])
            self.thrifty.append(next(i + 1 for i in range(rows) if each[i] <= cheap))
        #: what runs alike, however much it is worth
        self.pace = (variant, at_most, tuple(self.by_rows))
        self.key = (self.worth, *self.pace)

    def seconds(self, rows: int) -> float:
        """Seconds that a batch takes as expected; one query larger than a batch runs in pieces."""
        if rows <= self.max_rows:
            return self.by_rows[rows]
        pieces, rest = divmod(rows, self.max_rows)
        return pieces * self.by_rows[self.max_rows] + self.by_rows[rest]


#: points of accuracy that a second must bring, by level
PRICES = tuple(
    FREE_PRICE * math.exp(level / LEVELS * (STEEPNESS + CURVATURE * (level / LEVELS))) for level in range(LEVELS)
)


class Menu:
    """The options of one application on devices that have the same ones: at least one, in any order."""

    def __init__(self, options: Sequence[Option]) -> None:
        #: also those that are no use unless a query names them
        self.every = tuple(options)
        self.options = sorted(useful(options), key=lambda option: (-option.worth, option.cost))
        self.best_worth = self.options[0].worth
        #: by how much the most accurate option is better than the next
        self.lead = self.best_worth - self.options[1].worth if len(self.options) > 1 else INF
        self.key = tuple(option.key for option in self.options)
        self._least: dict[int, float] = {}
        self._ranked: list[tuple[tuple[float, Option], ...] | None] = [None] * LEVELS

    def ranked(self, level: int) -> tuple[tuple[float, Option], ...]:
        """(value of a row, option), best first, at a level of pressure."""
        ranked = self._ranked[level]
        if ranked is None:
            priced = [(option.worth - PRICES[level] * option.cost, option) for option in self.options]
            priced.sort(key=lambda item: -item[0])
            ranked = self._ranked[level] = tuple(priced)
        return ranked

    def least(self, rows: int) -> float:
        """Seconds of the variant that is done first with ``rows`` rows, as expected: no device counts on less."""
        if rows not in self._least:
            self._least[rows] = min(option.seconds(rows) for option in self.options)
        return self._least[rows]

    def best(
        self, rows: int, queries: int, within_s: float, factors: Mapping[Option, float], level: int
    ) -> Option | None:
        """The most valuable option whose batch of ``rows`` in so many ``queries``, taking as many times as long as
        expected as its factor says, ends within ``within_s`` seconds; None: none does."""
        best, most, a_second = None, -INF, PRICES[level]
        for option in self.options:
            if rows > option.max_rows and queries > 1:
                continue
            seconds = option.seconds(rows)
            if seconds * factors[option] > within_s:
                continue
            value = option.worth * rows - a_second * seconds
            if value > most:
                best, most = option, value
        return best


def useful(options: Sequence[Option]) -> list[Option]:
    """Without those for which another one is at least as accurate and at no batch size slower."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (-option.worth, option.cost)):
        if not any(_dominates(other, option) for other in kept):
            kept.append(option)
    return kept


def _dominates(one: Option, other: Option) -> bool:
    if one.worth < other.worth or one.max_rows < other.max_rows:
        return False
    return all(one.seconds(rows) <= other.seconds(rows) for rows in range(1, other.max_rows + 1))
