"""How long a device takes for each of its options, compared with what is expected. Pure.

What a run takes strays from its expected time for three reasons, and each belongs to somebody else. A profile is off,
or inputs differ: that is the option's, and says nothing about others. The device is slow (heat, neighbours): that
concerns all of its options alike, those too that have not run since. And wake-ups and the like take their time however
short the run: they may double a run of 0.3 ms and are nothing to one of 20 ms. So each option has a mean and a
deviation of its own, and the device has a *scale* by which those move that have not run lately. It follows errors, not
levels: whoever takes twice its profile for ever moves nobody else (after Efron and Morris, "Stein's estimation rule and
its competitors", 1973, for what is common and what is each one's own).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from .options import INF, Option

#: a larger factor is a slow one
SLOW = 1.25
#: seconds by which any run may be longer, whatever it runs
ABSOLUTE_S = 0.001
#: short runs tell little of their device one by one: it learns from as many of an option together as last so long
TOGETHER_S = 0.01
#: less of the expected time than this counts as this: nothing takes no time
LEAST_RATIO = 0.001
#: a relative mean deviation with which an option tells half as much about its device as one that never strays
STRAYS = 0.2
STRAYS_2 = STRAYS * STRAYS
#: as many observations as what is common counts for, against an option's own
PRIOR = 10
#: the device has learnt so often from an option when its word has half of its weight
KNOWN = 20
#: for so many seconds, and so many of another option's runs, an option speaks for its device about what that one took
WITNESS_S = 0.25
WITNESS_RUNS = 4.0
#: the part of it that an option which speaks for its device must tell
WITNESS = 0.5
#: weights of the last runs in an option's level, in its bias and in its usual deviation; in these two once there are
#: so many observations
LEVEL_WEIGHT = 0.5
BIAS_WEIGHT = 0.005
USUAL_WEIGHT = 0.01
LEARNT = 100
SETTLED = 200
#: what is common is told to all options once it has changed by this part
TOLD = 0.02

#: how much a batch counts in the running mean and mean deviation
WEIGHT = 0.05
#: batches in a row that took less than the mean by more than the mean deviation: a device whose trouble is over.
#: By chance one in a hundred is the last of so many
OVER = 3
#: what each further one of these counts; by the usual weight a device that was slow for seconds would be left
#: alone for as many again
WEIGHT_OVER = 0.25
#: mean deviations above the mean: three are about 2.4 standard deviations of a normal distribution
DEVIATIONS = 3.0
#: a single batch counts for no more than this times the mean; a stall says nothing about the next batch
LARGEST = 3.0
#: mean deviation before anything was observed, and what is taken for none
AT_FIRST = 0.01
NONE = 1e-4


class Noise:
    """How far batches stray from their expected times: ``factor`` times the expectation is enough but for about one
    batch in a hundred.

    Running mean and mean deviation of observed over expected time, as TCP estimates its timeout (Jacobson, 1988). What
    always keeps its times soon has a factor of 1.
    """

    def __init__(self, mean: float = 1.0, deviation: float = AT_FIRST) -> None:
        self.mean = mean
        self.deviation = deviation
        self._below = 0
        self.sum_up()

    def observe(self, ratio: float, weight: float = WEIGHT, trust: float = 1.0, strayed: float | None = None) -> None:
        """``ratio``: of the time that a batch took to the time expected. ``weight``: of this observation, which counts
        ``trust`` times as much (0 to 1). ``strayed``: from what was expected of this batch; None: from the mean."""
        mean, deviation = self.mean, self.deviation
        largest = LARGEST * mean if mean > 1.0 else LARGEST
        error = (ratio if ratio < largest else largest) - mean
        self._below = self._below + 1 if error < -deviation else 0
        if self._below > OVER:
            # How far the old mean was off says nothing about how far batches stray from the new one.
            mean += trust * WEIGHT_OVER * error
            deviation -= trust * WEIGHT_OVER * deviation
        else:
            mean += trust * weight * error
            deviation += trust * weight * (abs(error if strayed is None else strayed) - deviation)
        self.mean, self.deviation = mean, deviation
        self.sum_up()

    def forget(self, towards: float = 1.0) -> None:
        """Believe half of what was learnt: what is taken for too slow to be used can show that it is not."""
        self.mean = towards + (self.mean - towards) / 2
        self.deviation /= 2
        self.sum_up()

    def settled(self) -> bool:
        """Whether all keep their times exactly."""
        return self.mean == 1.0 and self.deviation <= NONE

    def sum_up(self) -> None:
        deviation = self.deviation if self.deviation > NONE else 0.0
        self.factor = max(1.0, self.mean + DEVIATIONS * deviation)


class Pace(Noise):
    """One option's. ``scale``: its device's when this was up to date. ``bias``: of its profile, what it takes in the
    long run at a scale of 1; ``level``: the scale as its last runs show it. ``usual``: its relative deviation in the
    long run, which a change of scale hardly moves. ``expected_s`` and ``took_s``: of its runs from which the device has
    not learnt yet, together."""

    def __init__(self, mean: float, deviation: float, scale: float) -> None:
        super().__init__(mean, deviation)
        self.scale = self.level = scale
        self.bias = mean / scale
        self.usual = deviation / mean
        #: observations, and how often the device has learnt from them
        self.count = self.taught = 0
        self.heard_at = -INF
        self.expected_s = self.took_s = 0.0

    def learn(self, ratio: float, expected_s: float, now: float) -> None:
        """One more observation."""
        error = ratio / self.mean - 1.0
        if error > LARGEST - 1.0:
            error = LARGEST - 1.0
        self.count = count = self.count + 1
        weight, usual_weight = WEIGHT, USUAL_WEIGHT
        if count < LEARNT:
            shrunk = 1.0 / (PRIOR + count)
            weight, usual_weight = max(weight, shrunk), max(usual_weight, shrunk)
        self.observe(ratio, weight)
        self.usual += usual_weight * (abs(error) - self.usual)
        self.heard_at = now
        self.expected_s += expected_s
        self.took_s += ratio * expected_s

    def move(self, scale: float) -> None:
        """The device's scale has become this."""
        if scale != self.scale:
            moved = scale / self.scale
            self.mean *= moved
            self.deviation *= moved
            self.scale = scale
            self.sum_up()


class Factors(dict[Option, float]):
    """A device's factors by option: so many times its expected time is enough for a batch.

    ``scale``: how slow the device is by what all options that ran lately show alike, compared with what each one of
    them takes in the long run. ``common``: what runs take, of whatever option; for those that never ran here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.common = Noise()
        self.scale = Noise(deviation=0.0)
        self._paces: dict[Hashable, Pace] = {}
        #: the same, for a quick look
        self._of: dict[Option, Pace] = {}
        #: the last two options that told much about the device
        self._last: Pace | None = None
        self._before: Pace | None = None
        #: what scale and common factor were when all options were told of them
        self._told = self.scale.factor, self.common.factor

    def __missing__(self, option: Option) -> float:
        pace = self._of.get(option) or self._paces.get(option.pace)
        if pace is None:
            factor = self.common.factor
        else:
            self._of[option] = pace
            pace.move(self.scale.mean)
            strays = self.scale.deviation * pace.mean / self.scale.mean
            factor = pace.factor
            if strays > pace.deviation:
                factor = max(1.0, pace.mean + DEVIATIONS * strays)
        self[option] = factor
        return factor

    @property
    def learnt(self) -> int:
        """Of how many options something is known."""
        return len(self._paces)

    def keep(self, options: Iterable[Option]) -> None:
        """Forget all other options."""
        self.clear()
        self._of.clear()
        kept = {option.pace for option in options}
        self._paces = {key: pace for key, pace in self._paces.items() if key in kept}
        self._last = self._before = None

    def learn(self, option: Option, ratio: float, expected_s: float, now: float) -> bool:
        """A batch that was expected to take ``expected_s`` seconds took ``ratio`` times as long. True: some factor has
        changed."""
        pace, common = self._of.get(option) or self._met(option), self.common
        if ratio == 1.0 and pace.settled() and common.settled():
            pace.heard_at = now
            return False
        if ratio < LEAST_RATIO:
            ratio = LEAST_RATIO
        if pace.scale != self.scale.mean:
            pace.move(self.scale.mean)
        pace.learn(ratio, expected_s, now)
        if pace.expected_s >= TOGETHER_S and self._learn_common(pace, now):
            return True
        if pace.factor == self.get(option):
            return False
        self[option] = pace.factor
        return True

    def _learn_common(self, pace: Pace, now: float) -> bool:
        """What an option's last runs tell about the device. True: it has changed for all options."""
        common, scale = self.common, self.scale
        expected_s, took_s, bias, usual = pace.expected_s, pace.took_s, pace.bias, pace.usual
        pace.expected_s = pace.took_s = 0.0
        pace.taught = taught = pace.taught + 1
        ratio, usually = took_s / expected_s, bias * scale.mean
        largest = LARGEST * usually if usually > 1.0 else LARGEST
        if ratio > largest:
            # As for a single batch: a stall says nothing about what comes next.
            ratio = largest
        tells = expected_s / (expected_s + ABSOLUTE_S) * (STRAYS_2 / (STRAYS_2 + usual * usual))
        strayed, largest = ratio - usually, LARGEST * common.mean
        common.observe(ratio, WEIGHT, tells, strayed if strayed < largest else largest)
        pace.level += LEVEL_WEIGHT * (ratio / bias - pace.level)
        # The scale as this option shows it, as far as another one that ran lately shows the same.
        agreed, at, last = pace.level, scale.mean, self._last
        other = self._before if last is pace else last
        if other is not None and (now - other.heard_at <= WITNESS_S or now - other.heard_at <= WITNESS_RUNS * took_s):
            seen = other.level
            if agreed > at:
                if seen < agreed:
                    agreed = seen if seen > at else at
            elif seen > agreed:
                agreed = seen if seen < at else at
        scale.observe(agreed, WEIGHT, tells * taught / (taught + KNOWN))
        pace.scale = scale.mean
        weight = 1.0 / (1 + taught) if taught < SETTLED else BIAS_WEIGHT
        pace.bias += weight * (ratio / scale.mean - bias)
        if pace is not last and tells >= WITNESS:
            self._last, self._before = pace, last
        told_scale, told_common = self._told
        tell_scale, tell_common = scale.mean + DEVIATIONS * scale.deviation, common.factor
        if abs(tell_scale - told_scale) <= TOLD * told_scale and abs(tell_common - told_common) <= TOLD * told_common:
            return False
        self.clear()
        self._told = tell_scale, tell_common
        return True

    def forget(self, now: float, after_s: float, running: Iterable[Option], silent: bool) -> bool:
        """Believe half of what makes options slow that have not run for ``after_s`` seconds, and as much of what is
        common if the device is ``silent``, has run nothing at all in that time. True: some factor has changed."""
        common, scale, changed = self.common, self.scale, False
        towards, slow = (1.0, SLOW) if silent else (common.mean, max(SLOW, common.factor))
        busy = {option.pace for option in running}
        for key, pace in self._paces.items():
            pace.move(scale.mean)
            if pace.factor > slow and now - pace.heard_at > after_s and key not in busy:
                pace.forget(min(towards, pace.mean))
                pace.heard_at = now
                changed = True
        if silent and (common.factor > SLOW or scale.factor > SLOW):
            common.forget()
            scale.forget()
            # What each option takes was made less already.
            for pace in self._paces.values():
                pace.scale = scale.mean
            changed = True
        if changed:
            self.clear()
        return changed

    def _met(self, option: Option) -> Pace:
        pace = self._paces.get(option.pace)
        if pace is None:
            pace = self._paces[option.pace] = Pace(self.common.mean, self.common.deviation, self.scale.mean)
            self.pop(option, None)
        self._of[option] = pace
        return pace
