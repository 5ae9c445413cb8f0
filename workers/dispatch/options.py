"""Serving options of a query class: what a device can run, and which option is worth its time at a pressure. Pure.

The value of a row is the option's utility (accuracy times the application's weight) less the price of the device time.
The price rises exponentially with pressure, and pressure with the part of the SLO for which devices are busy: idle
devices run the most accurate option, and the more work is scheduled, the more accuracy a second must bring. (The same
trade-off as in drift-plus-penalty control; Neely, "Stochastic Network Optimization", 2010, Chapter 4.)
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from .latency import LatencyModel
from .policy_tables import PolicySet

INF = math.inf
#: pressure levels, from idle to a full SLO of scheduled work
LEVELS = 64
#: price of a second on an idle device, in points of accuracy
FREE_PRICE = 0.5
#: the price is multiplied by exp(pressure * (STEEPNESS + CURVATURE * pressure)): gentle at low pressure, to keep
#: accuracy, and steep towards full pressure, since a backlog serves fewer queries and less accurately
STEEPNESS = 9.0
CURVATURE = 8.0
#: a batching delay pays if a larger batch makes a row cheaper by this factor
WORTH_WAITING = 0.9


class ServingOption:
    """A variant that a device may run for a query class.

    Args:
        variant: its id.
        accuracy: normalised percent; ``weight``: of the application.
        latency: expected seconds by rows; ``max_rows``: of one batch.
        at_most: faster runs are expected, of smaller inputs, and say nothing about the device.
        planned: placed by the plan, with its ``rate`` in items/s and ``slice_rows``, the most rows that the plan gives
            it in one batch; else loaded in addition. For published stacks only.
        bound: seconds by rows that hold for nearly all batches (a high quantile); None: ``latency``.
        alone: queries run alone: a batch holds one of them, of any number of rows, which run at once.
        row_transfer_s: part of ``latency`` and ``bound`` that a row is on the way to the device and back, beyond the
            round trip; during it the device may run another batch.

    Attributes:
        utility: accuracy times weight.
        by_rows: seconds by rows, up to ``max_rows``.
        row_s: seconds a row in the most efficient batch.
        improves: by rows, whether some larger batch makes a row so much cheaper that a batching delay may pay.
        latency_key: equal for options that take equally long, whatever their utility.
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
        slice_rows: int = 0,
        bound: LatencyModel | None = None,
        row_transfer_s: float = 0.0,
        alone: bool = False,
    ) -> None:
        max_rows = 1 if alone else max_rows
        self.variant = variant
        self.alone = alone
        self.row_transfer_s = row_transfer_s
        self.accuracy = accuracy
        self.latency = latency
        self.bound = latency if bound is None else bound
        self.planned = planned
        self.rate = rate
        self.slice_rows = slice_rows or max_rows
        self.at_most = at_most
        self.utility = accuracy * weight
        self.max_rows = max_rows
        self.by_rows = [latency.seconds(rows) for rows in range(max_rows + 1)]
        each = [self.by_rows[rows] / rows for rows in range(1, max_rows + 1)]
        self.row_s = min(each)
        least, improves = INF, []
        for seconds in reversed(each):
            improves.append(least < WORTH_WAITING * seconds)
            least = min(least, seconds)
        self.improves = [True, *reversed(improves)]
        table = [latency.seconds(rows) for rows in range(latency.largest + 1)] if alone else self.by_rows
        self.latency_key = (variant, at_most, alone, tuple(table))
        self.key = (self.utility, *self.latency_key)

    def seconds(self, rows: int) -> float:
        """Expected seconds; one query larger than a batch runs in pieces, or alone."""
        if rows <= self.max_rows:
            return self.by_rows[rows]
        if self.alone:
            return self.latency.seconds(rows)
        pieces, rest = divmod(rows, self.max_rows)
        return pieces * self.by_rows[self.max_rows] + self.by_rows[rest]


#: price of a second in points of accuracy, by pressure level
PRICES = tuple(
    FREE_PRICE * math.exp(level / LEVELS * (STEEPNESS + CURVATURE * (level / LEVELS))) for level in range(LEVELS)
)


class OptionSet:
    """The options of one query class on some devices.

    Args:
        options: at least one, in any order.
        policies: by which stacks with policies choose among them; None: there are none.

    Attributes:
        options: the most accurate first.
        lead: utility of the most accurate option less that of the next.
    """

    def __init__(self, options: Sequence[ServingOption], policies: PolicySet | None = None) -> None:
        self.all_options = tuple(options)
        self.policies = policies
        self.options = sorted(options, key=lambda option: (-option.utility, option.row_s))
        self.best_utility = self.options[0].utility
        self.lead = self.best_utility - self.options[1].utility if len(self.options) > 1 else INF
        self.key = tuple(option.key for option in self.options)
        self._within_s = -1.0
        self._batches: tuple[list[float], list[float]] | None = None
        self._highest: dict[float, float] = {}
        self._by_level = np.zeros(LEVELS + 1)
        self._least: dict[int, float] = {}
        self._ranked: list[tuple[tuple[float, ServingOption], ...] | None] = [None] * LEVELS

    def ranked(self, level: int) -> tuple[tuple[float, ServingOption], ...]:
        """(value of a row, option), best first, at a pressure level."""
        ranked = self._ranked[level]
        if ranked is None:
            priced = [(option.utility - PRICES[level] * option.row_s, option) for option in self.options]
            priced.sort(key=lambda item: -item[0])
            ranked = self._ranked[level] = tuple(priced)
        return ranked

    def shortest_s(self, within_s: float, part: float) -> float:
        """Return the seconds of the shortest batch with part of the best throughput of batches within ``within_s``.

        ``part``: 0 to 1; more counts as 1. 0 s: there are no such batches.
        """
        seconds, throughputs = self._batches or self._find_batches()
        count = bisect_right(seconds, within_s)
        if not count:
            return 0.0
        return seconds[bisect_left(throughputs, min(part, 1.0) * throughputs[count - 1], 0, count)]

    def throughputs(self, within_s: float) -> np.ndarray:
        """Return rows/s of the most valuable option by pressure level, and the highest; 0: no batch is that short."""
        if self._within_s != within_s:
            highest: dict[float, float] = {}
            for option in self.options:
                each = [rows / seconds for rows, seconds in enumerate(option.by_rows) if rows and seconds <= within_s]
                if each:
                    highest[option.utility] = max(*each, highest.get(option.utility, 0.0))
            self._within_s = within_s
            if highest != self._highest:
                self._highest, self._by_level = highest, _by_level(highest)
        return self._by_level

    def _find_batches(self) -> tuple[list[float], list[float]]:
        """Return seconds and rows/s of batches with more rows/s than all shorter ones."""
        batches = sorted(
            (seconds, rows / seconds) for option in self.options for rows, seconds in enumerate(option.by_rows) if rows
        )
        self._batches = found = [], []
        for seconds, throughput in batches:
            if not found[1] or throughput > found[1][-1]:
                found[0].append(seconds)
                found[1].append(throughput)
        return found

    def least(self, rows: int) -> float:
        """Expected seconds of the fastest option: a lower bound for all devices."""
        if rows not in self._least:
            self._least[rows] = min(option.seconds(rows) for option in self.options)
        return self._least[rows]

    def best(
        self, rows: int, queries: int, within_s: float, corrections: Mapping[ServingOption, float], level: int
    ) -> ServingOption | None:
        """The most valuable option that takes at most ``within_s`` corrected seconds for ``rows`` of ``queries``."""
        best, most, price = None, -INF, PRICES[level]
        for option in self.options:
            if rows > option.max_rows and queries > 1:
                continue
            seconds = option.seconds(rows)
            if seconds * corrections[option] > within_s:
                continue
            value = option.utility * rows - price * seconds
            if value > most:
                best, most = option, value
        return best


def _by_level(highest: Mapping[float, float]) -> np.ndarray:
    """Throughputs of the most valuable options by level, and the highest, of those by utility."""
    priced = [
        max([(utility - price / throughput, throughput) for utility, throughput in highest.items()], default=(0.0, 0.0))
        for price in PRICES
    ]
    return np.array([*[throughput for _, throughput in priced], max(highest.values(), default=0.0)])
