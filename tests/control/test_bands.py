"""Bands in virtual time: noise of many applications asks for next to no plan, and a burst is found as with one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median

import numpy as np
import pytest

from scheduler.control.demand import FALSE_BURSTS_PER_S, LOOKS_PER_S, band, bands, estimates
from workers.gateway.bursts import LONG, SLOT_S, BurstDetector
from workers.protocol.control import Burst

PERIOD_S = 30
WARM_S = 60


class Watched:
    """Poisson arrivals, a detector, and, whenever one is due, a plan for what has arrived so far."""

    def __init__(self, rates: Sequence[float], seed: int) -> None:
        self._rates = dict(zip((f"a{i}" for i in range(len(rates))), rates, strict=True))
        self._random = np.random.default_rng(seed)
        self._detector = BurstDetector()
        self._seconds: list[tuple[int, dict[str, float]]] = []
        self._version = 0

    def warm_up(self, seconds: int = WARM_S) -> None:
        """Seconds of history, and a plan for them."""
        rates = list(self._rates.values())
        for second in range(len(self._seconds), len(self._seconds) + seconds):
            counts = self._random.poisson(rates).astype(float)
            self._seconds.append((second, dict(zip(self._rates, counts.tolist(), strict=True))))
        self._plan({})

    def _plan(self, observed: dict[str, float]) -> None:
        now = len(self._seconds)
        self._version += 1
        planned = estimates(self._seconds, self._rates, now, observed, PERIOD_S).planned
        self._detector.set_plan(bands(planned), self._version, float(now))

    def second(self) -> list[tuple[float, Burst]]:
        """A second more: (seconds into it, burst), and a plan at its end where one is due."""
        start, found = len(self._seconds), []
        counts = dict.fromkeys(self._rates, 0.0)
        for slot in range(1, 11):
            end = start + slot * SLOT_S
            for name, count in zip(
                self._rates, self._random.poisson([r * SLOT_S for r in self._rates.values()]), strict=True
            ):
                counts[name] += count
                for _ in range(count):
                    self._detector.arrived(name, 1, end - SLOT_S / 2)
            found += [(slot * SLOT_S, burst) for burst in self._detector.check(end + 1e-6)]
        self._seconds.append((start, counts))
        if found or (start + 1) % PERIOD_S == 0:
            self._plan({burst.application: burst.rate for _, burst in found})
        return found


STEADY = {
    "one": [2.0],
    "10": [2.0] * 10,
    "40": [2.0] * 40,
    "100": [2.0] * 100,
    "40 of all sizes": np.geomspace(0.2, 200, 40).tolist(),
}


#: between the extremes, which suffice for a short form: each application's arrivals take seconds to draw
BETWEEN = {"10", "40"}


@pytest.mark.parametrize(
    "rates",
    [pytest.param(rates, id=name, marks=[pytest.mark.long] * (name in BETWEEN)) for name, rates in STEADY.items()],
)
def test_constant_rates_ask_for_at_most_two_plans_in_five_minutes(rates):
    watched = Watched(rates, seed=1)
    watched.warm_up()
    assert sum(len(watched.second()) for _ in range(300)) <= 2


def found_after(rate: float, times: float, applications: int, seed: int) -> float:
    """Seconds until a rate change of one of several applications is found; 60 where it is not."""
    random = np.random.default_rng(seed)
    seconds = [(t, {"a": float(count)}) for t, count in enumerate(random.poisson(rate, WARM_S))]
    planned = estimates(seconds, ["a"], WARM_S, horizon_s=PERIOD_S).planned["a"]
    detector = BurstDetector()
    detector.set_plan({"a": band(planned, applications)}, 1, float(WARM_S))
    for slot in range(600):
        at = WARM_S + slot * SLOT_S
        for _ in range(random.poisson(rate * times * SLOT_S)):
            detector.arrived("a", 1, at + SLOT_S / 2)
        if detector.check(at + SLOT_S + 1e-6):
            return round((slot + 1) * SLOT_S, 1)
    return 60.0


@pytest.mark.parametrize(
    ("rate", "times", "applications", "within_s"),
    [
        # With three deviations for any number of applications these took 0.2, 0.4, 0.8 and 1.2 s.
        *((400, 2, 1, 0.3), (400, 2, 100, 0.3)),
        *((100, 2, 1, 0.5), (100, 2, 100, 0.8)),
        *((40, 2, 1, 1.2), (40, 2, 100, 2.0)),
        *((2, 4, 1, 3.5), (2, 4, 100, 6.0)),
    ],
)
def test_a_burst_of_one_application_is_found_though_there_are_many(rate, times, applications, within_s):
    assert median(found_after(rate, times, applications, seed) for seed in range(41)) <= within_s


def test_a_rate_that_collapses_is_found_by_the_longest_window():
    assert found_after(100, 0.1, applications=1, seed=1) <= LONG * SLOT_S


@pytest.mark.parametrize("applications", [1, 10, 100])
@pytest.mark.parametrize("planned", [1.0, 2.0, 5.0, 20.0, 300.0])
def test_limits_are_poisson_quantiles_of_what_all_applications_may_miss_together(planned, applications):
    limits = band(planned, applications)
    tail = FALSE_BURSTS_PER_S / LOOKS_PER_S / applications
    assert 3.5 < -NormalDist().inv_cdf(tail) < 5.5
    for seconds, rate in ((0.3, limits.surge), (1.0, limits.high), (3.0, limits.rise)):
        assert 0.02 * tail < above(planned * seconds, rate * seconds) < 1.5 * tail


def above(mean: float, count: float) -> float:
    first = math.floor(count) + 1
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(first, first + 400))


def test_an_application_has_a_wider_band_beside_others():
    alone, beside = band(50.0), bands({"a": 50.0, "b": 1.0, "c": 700.0})["a"]
    assert beside == band(50.0, 3)
    assert beside.low < alone.low
    assert (beside.surge, beside.high, beside.rise) > (alone.surge, alone.high, alone.rise)
