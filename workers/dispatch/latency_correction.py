"""Latency correction: factors on the expected seconds of batches. Pure.

A factor says, by device and option, how many times its expected seconds a batch may take.

Runs deviate from their expected seconds for three reasons. A profile is wrong, or inputs differ: that concerns one
option. The device is slow (heat, neighbours): that concerns all its options, also those that have not run since. And
wake-ups take time, which may double a run of 0.3 ms. So each option has a mean and deviation of its own, and the device
has a *scale*, which corrects options that have not run recently. The scale follows errors, not levels: an option that
always takes twice its profile moves no other (after Efron and Morris, "Stein's estimation rule and its competitors",
1973).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from .options import INF, ServingOption

#: a larger correction is a slow one
SLOW = 1.25
#: seconds by which any run may be longer, whatever it runs
ABSOLUTE_S = 0.001
#: expected seconds of an option's runs that the device learns from together: single short runs say little
POOLED_S = 0.01
#: smallest ratio of observed to expected seconds
LEAST_RATIO = 0.001
#: square of the relative deviation with which an option is trusted half as much as one without deviation
HALF_TRUST_DEVIATION_2 = 0.2**2
#: weight of the device's estimate against an option's own, in observations
PRIOR = 10
#: pooled observations after which an option is trusted half
HALF_TRUST_COUNT = 20
#: seconds, and runs of the other option, for which an option may corroborate a change of scale; and its least trust
CORROBORATION_S = 0.25
CORROBORATION_RUNS = 4.0
CORROBORATION_TRUST = 0.5
#: weights of the latest observation in an option's level, its bias and its usual deviation, and the observations from
#: which the latter two apply
LEVEL_WEIGHT = 0.5
BIAS_WEIGHT = 0.005
USUAL_WEIGHT = 0.01
LEARNT = 100
SETTLED = 200
#: relative change of the device's estimates from which all options' corrections are computed anew
CHANGED = 0.02

#: weight of a batch in the running mean and deviation
WEIGHT = 0.05
#: batches in a row below the mean by more than the deviation that show a recovery (1% by chance), and the weight of
#: each further one: with the usual weight, a device that was slow for seconds would get nothing for as long again
RECOVERED = 3
RECOVERED_WEIGHT = 0.25
#: mean deviations above the mean: about 2.4 standard deviations of a normal distribution
DEVIATIONS = 3.0
#: a batch counts for at most this multiple of the mean: a stall says nothing about the next batch
LARGEST = 3.0
#: the largest mean and deviation that another core is told
LARGEST_TOLD = 1e6
#: mean deviation before any observation, and the one taken for none
FIRST_DEVIATION = 0.01
NEGLIGIBLE = 1e-4


class RatioEstimator:
    """Running mean and mean deviation of observed over expected seconds.

    They are estimated as in TCP's RTO (Jacobson, 1988).

    Attributes:
        factor: at least 1; times the expected seconds it is enough for about 99 of 100 batches.
    """

    def __init__(self, mean: float = 1.0, deviation: float = FIRST_DEVIATION) -> None:
        self.mean = mean
        self.deviation = deviation
        self._below = 0
        self.refresh()

    def observe(self, ratio: float, weight: float = WEIGHT, trust: float = 1.0, error: float | None = None) -> None:
        """Observe a ratio.

        Args:
            weight: of this observation, multiplied by ``trust`` (0 to 1).
            error: deviation from what was expected of this batch; None: from the mean.
        """
        mean, deviation = self.mean, self.deviation
        most = LARGEST * mean if mean > 1.0 else LARGEST
        from_mean = (ratio if ratio < most else most) - mean
        self._below = self._below + 1 if from_mean < -deviation else 0
        if self._below > RECOVERED:
            # The error of the old mean says nothing about deviations from the new one.
            mean += trust * RECOVERED_WEIGHT * from_mean
            deviation -= trust * RECOVERED_WEIGHT * deviation
        else:
            mean += trust * weight * from_mean
            deviation += trust * weight * (abs(from_mean if error is None else error) - deviation)
        self.mean, self.deviation = mean, deviation
        # As in ``refresh``, without another call for each run.
        factor = mean + DEVIATIONS * deviation if deviation > NEGLIGIBLE else mean
        self.factor = factor if factor > 1.0 else 1.0

    def decay(self, towards: float = 1.0) -> None:
        """Halve the deviation and the mean's way to ``towards``: what seems too slow must be able to show it is not."""
        self.mean = towards + (self.mean - towards) / 2
        self.deviation /= 2
        self.refresh()

    def exact(self) -> bool:
        return self.mean == 1.0 and self.deviation <= NEGLIGIBLE

    def refresh(self) -> None:
        mean, deviation = self.mean, self.deviation
        factor = mean + DEVIATIONS * deviation if deviation > NEGLIGIBLE else mean
        self.factor = factor if factor > 1.0 else 1.0


class OptionEstimator(RatioEstimator):
    """The ratios of one option on one device.

    Attributes:
        scale: the device's, when this was up to date.
        bias: long-run ratio at a scale of 1; ``level``: the scale as the latest runs show it.
        usual: long-run relative deviation, which a change of scale hardly moves.
        count: observations; ``pooled``: of these, groups that the device has learnt from.
        expected_s, took_s: of runs from which the device has not learnt yet.
    """

    def __init__(self, mean: float, deviation: float, scale: float) -> None:
        super().__init__(mean, deviation)
        self.scale = self.level = scale
        self.bias = mean / scale
        self.usual = deviation / mean
        self.count = self.pooled = 0
        self.measured_at = -INF
        self.expected_s = self.took_s = 0.0

    def learn(self, ratio: float, expected_s: float, now: float) -> None:
        error = ratio / self.mean - 1.0
        if error > LARGEST - 1.0:
            error = LARGEST - 1.0
        self.count += 1
        weight, usual_weight = WEIGHT, USUAL_WEIGHT
        if self.count < LEARNT:
            shrunk = 1.0 / (PRIOR + self.count)
            if shrunk > weight:
                weight = shrunk
            if shrunk > usual_weight:
                usual_weight = shrunk
        self.observe(ratio, weight)
        self.usual += usual_weight * (abs(error) - self.usual)
        self.measured_at = now
        self.expected_s += expected_s
        self.took_s += ratio * expected_s

    def rescale(self, scale: float) -> None:
        if scale != self.scale:
            change = scale / self.scale
            self.mean *= change
            self.deviation *= change
            self.scale = scale
            self.refresh()


class LearnedLatencies(NamedTuple):
    """Means and mean deviations of observed over expected seconds that one core has learned, for the next one.

    ``common`` and ``scale`` as in :class:`LatencyCorrections`; of a variant, those of the option that ran most often.
    """

    common: tuple[float, float]
    scale: tuple[float, float]
    variants: Mapping[Hashable, tuple[float, float]]


def _told(estimator: RatioEstimator) -> tuple[float, float]:
    return max(LEAST_RATIO, min(estimator.mean, LARGEST_TOLD)), min(estimator.deviation, LARGEST_TOLD)


class LatencyCorrections(dict[ServingOption, float]):
    """Correction factors of the options on one device.

    Attributes:
        scale: how slow the device is, as its options' latest runs show alike, compared with each one's long run.
        common: ratios of all runs, for options that never ran here.
    """

    # Read and written for each run; a dictionary's subclass looks other attributes up slowly.
    __slots__ = ("_before", "_by_option", "_estimators", "_inherited", "_last", "_used", "common", "scale")

    def __init__(self) -> None:
        super().__init__()
        self.common = RatioEstimator()
        self.scale = RatioEstimator(deviation=0.0)
        self._estimators: dict[Hashable, OptionEstimator] = {}
        #: the same, by option: a latency key takes long to hash
        self._by_option: dict[ServingOption, OptionEstimator] = {}
        #: by variant: mean and deviation that another core has learnt
        self._inherited: dict[Hashable, tuple[float, float]] = {}
        #: the last two options that the device learnt much from
        self._last: OptionEstimator | None = None
        self._before: OptionEstimator | None = None
        #: bound of the scale and factor of ``common`` that all corrections were computed with
        self._used = self.scale.factor, self.common.factor

    def __missing__(self, option: ServingOption) -> float:
        estimator = self._by_option.get(option) or self._estimators.get(option.latency_key)
        if estimator is None:
            factor = RatioEstimator(*self._first_guess(option)).factor
        else:
            self._by_option[option] = estimator
            estimator.rescale(self.scale.mean)
            deviation = self.scale.deviation * estimator.mean / self.scale.mean
            factor = estimator.factor
            if deviation > estimator.deviation:
                factor = max(1.0, estimator.mean + DEVIATIONS * deviation)
        self[option] = factor
        return factor

    def keep(self, options: Iterable[ServingOption]) -> None:
        self.clear()
        self._by_option.clear()
        options = list(options)
        kept, variants = {option.latency_key for option in options}, {option.variant for option in options}
        self._inherited = {variant: one for variant, one in self._inherited.items() if variant in variants}
        self._estimators = {key: estimator for key, estimator in self._estimators.items() if key in kept}
        self._last = self._before = None

    def learned(self) -> LearnedLatencies | None:
        """The corrections of the device; None: nothing has run here."""
        if not self._estimators:
            return None
        variants: dict[Hashable, tuple[float, float]] = dict(self._inherited)
        for (variant, *_), estimator in sorted(self._estimators.items(), key=lambda item: item[1].count):
            estimator.rescale(self.scale.mean)
            variants[variant] = _told(estimator)
        return LearnedLatencies(_told(self.common), _told(self.scale), variants)

    def inherit(self, learned: LearnedLatencies) -> bool:
        """Whether anything changed: not if something has run here, or if a number could not come from runs."""
        numbers = [*learned.common, *learned.scale, *(number for one in learned.variants.values() for number in one)]
        means = [mean for mean, _ in (learned.common, learned.scale, *learned.variants.values())]
        if self._estimators or not all(map(math.isfinite, numbers)) or min(numbers) < 0 or min(means) < LEAST_RATIO:
            return False
        for estimator, known in ((self.common, learned.common), (self.scale, learned.scale)):
            estimator.mean, estimator.deviation = known
            estimator.refresh()
        self._inherited = dict(learned.variants)
        self._used = self.scale.mean + DEVIATIONS * self.scale.deviation, self.common.factor
        self.clear()
        return True

    def _first_guess(self, option: ServingOption) -> tuple[float, float]:
        return self._inherited.get(option.variant) or (self.common.mean, self.common.deviation)

    def learn(self, option: ServingOption, ratio: float, expected_s: float, now: float) -> bool:
        """Learn from a batch that took ``ratio`` times its expected seconds; whether any correction changed."""
        estimator = self._by_option.get(option) or self._estimator(option)
        if ratio == 1.0 and estimator.exact() and self.common.exact():
            estimator.measured_at = now
            return False
        if estimator.scale != self.scale.mean:
            estimator.rescale(self.scale.mean)
        estimator.learn(ratio if ratio > LEAST_RATIO else LEAST_RATIO, expected_s, now)
        if estimator.expected_s >= POOLED_S and self._learn_common(estimator, now):
            return True
        if estimator.factor == self.get(option):
            return False
        self[option] = estimator.factor
        return True

    def _learn_common(self, estimator: OptionEstimator, now: float) -> bool:
        """Update the device's estimates by an option's pooled runs; whether all corrections are computed anew."""
        common, scale = self.common, self.scale
        expected_s, took_s, bias = estimator.expected_s, estimator.took_s, estimator.bias
        estimator.expected_s = estimator.took_s = 0.0
        estimator.pooled += 1
        usually = bias * scale.mean
        ratio = min(took_s / expected_s, LARGEST * usually if usually > 1.0 else LARGEST)
        trust = expected_s / (expected_s + ABSOLUTE_S)
        trust *= HALF_TRUST_DEVIATION_2 / (HALF_TRUST_DEVIATION_2 + estimator.usual * estimator.usual)
        common.observe(ratio, WEIGHT, trust, min(ratio - usually, LARGEST * common.mean))
        estimator.level += LEVEL_WEIGHT * (ratio / bias - estimator.level)
        level = self._corroborated(estimator, now, took_s)
        scale.observe(level, WEIGHT, trust * estimator.pooled / (estimator.pooled + HALF_TRUST_COUNT))
        estimator.scale = scale.mean
        weight = 1.0 / (1 + estimator.pooled) if estimator.pooled < SETTLED else BIAS_WEIGHT
        estimator.bias += weight * (ratio / scale.mean - bias)
        if estimator is not self._last and trust >= CORROBORATION_TRUST:
            self._last, self._before = estimator, self._last
        used_scale, used_common = self._used
        new_scale, new_common = scale.mean + DEVIATIONS * scale.deviation, common.factor
        if (
            abs(new_scale - used_scale) <= CHANGED * used_scale
            and abs(new_common - used_common) <= CHANGED * used_common
        ):
            return False
        self.clear()
        self._used = new_scale, new_common
        return True

    def _corroborated(self, estimator: OptionEstimator, now: float, took_s: float) -> float:
        """Return the scale as an option shows it, as far as another one agrees, if one ran recently."""
        level, scale = estimator.level, self.scale.mean
        other = self._before if self._last is estimator else self._last
        if other is None or now - other.measured_at > max(CORROBORATION_S, CORROBORATION_RUNS * took_s):
            return level
        if level > scale:
            return min(level, max(other.level, scale))
        return max(level, min(other.level, scale))

    def decay(self, now: float, after_s: float, running: Iterable[ServingOption], silent: bool) -> bool:
        """Halve the excess of slow options that have not run for a while.

        Args:
            after_s: seconds without a run after which an option's excess is halved.
            running: options of batches under way, which are left alone.
            silent: nothing has run on the device in that time; then the device's own excess is halved as well.

        Returns:
            Whether any correction changed.
        """
        common, scale, changed = self.common, self.scale, False
        towards, slow = (1.0, SLOW) if silent else (common.mean, max(SLOW, common.factor))
        busy = {option.latency_key for option in running}
        for key, estimator in self._estimators.items():
            if estimator.scale != scale.mean:
                estimator.rescale(scale.mean)
            if estimator.factor > slow and now - estimator.measured_at > after_s and key not in busy:
                estimator.decay(min(towards, estimator.mean))
                estimator.measured_at = now
                changed = True
        if silent and (common.factor > SLOW or scale.factor > SLOW):
            common.decay()
            scale.decay()
            # Options' means have decayed already.
            for estimator in self._estimators.values():
                estimator.scale = scale.mean
            changed = True
        if changed:
            self.clear()
        return changed

    def _estimator(self, option: ServingOption) -> OptionEstimator:
        estimator = self._estimators.get(option.latency_key)
        if estimator is None:
            estimator = OptionEstimator(*self._first_guess(option), self.scale.mean)
            self._estimators[option.latency_key] = estimator
            self.pop(option, None)
        self._by_option[option] = estimator
        return estimator
