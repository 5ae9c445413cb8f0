"""What a variant's batches cost here: its profile, corrected by what was lately observed. Pure; ``now`` is handed in.

Two things are told apart. *Inflation* is short-lived: the device is slower than profiled at this moment (a neighbour
on the same cores, a hot GPU), and batch decisions made with the bare profile would come late; the policies' latencies
are scaled by it, never below the profile. It decays without observations, because an inflated latency can make a
policy refuse everything, and then nothing would ever be observed again. *Drift* is long-lived: the profile no longer
describes the device and should be measured again.

A batch also takes time around its run (waking up, handing over, sending); that *overhead* is observed and added,
and its excess over the usual decays in the same way.

How long a batch takes depends on how large its queries are, too, so each size class has an estimate of its own. Still
most queries are smaller than the largest of their class, at which it was measured: that those take less is no news.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workers.batching.latency import LatencyModel
from workers.protocol.specs import ProfilePoint

TOLERATED = (0.67, 1.5)
DRIFT_AFTER_S = 20.0
DRIFT_BATCHES = 50
DRIFT_EVERY_S = 300.0
#: a batch that is off by less is as profiled, whatever the ratio: runs back to back are quicker than single ones
DRIFT_LEAST_S = 0.001
_DRIFT_WEIGHT = 0.02
_INFLATION_WEIGHT = 0.1
_HOLDS_S, _HALF_LIFE_S = 0.5, 1.0
_INFLATION_MOST = 3.0
_INFLATION_STEP = 0.05
_OVERHEAD_WEIGHT = 0.1
_OVERHEAD_STEP_S = 0.0002
_OVERHEAD_FIRST_S, _OVERHEAD_MOST_S = 0.0006, 0.002

GUARD_FIRST_S, GUARD_LEAST_S, GUARD_MOST_S = 0.005, 0.002, 0.1
_GUARD_RISE, _GUARD_FALL = 1.0, 0.995


class Guard:
    """How much earlier than planned a batch that waits on purpose should start.

    A policy waits up to the last moment at which the p95 still fits. Timers fire late, and by definition one run in
    twenty takes longer than its p95; so this follows the high end of observed overshoots, rising at once and falling
    slowly. It shortens deliberate waiting alone: nothing is refused because of it.
    """

    def __init__(self) -> None:
        self.seconds = GUARD_FIRST_S

    def observe(self, overshoot_s: float) -> None:
        """Take in by how many seconds a batch ended after its planned start and modelled latency (or before: < 0)."""
        if overshoot_s > self.seconds:
            self.seconds = min(self.seconds + _GUARD_RISE * (overshoot_s - self.seconds), GUARD_MOST_S)
        else:
            self.seconds = max(self.seconds * _GUARD_FALL, GUARD_LEAST_S)


class LatencyEstimate:
    """Latency by rows of one variant on this device.

    Args:
        points: the profile; p95 feeds decisions, the mean is what observations are compared with (both are means
            over runs, so a well profiled variant has a ratio of 1).
        size: of the queries that were measured; 0: nobody knows (the application leaves dimensions open and declares no
            sizes); None: there is only one size.
    """

    def __init__(self, points: Sequence[ProfilePoint], size: int | None = None):
        self._size = size
        self._p95 = [(point.batch, point.p95_s) for point in points]
        #: the p95 as profiled
        self.profiled = LatencyModel(self._p95)
        self._expected = LatencyModel([(point.batch, point.mean_s) for point in points])
        #: the median, without inflation: what a batch takes when nothing gets in its way
        self.typical = LatencyModel([(point.batch, min(point.p50_s, point.p95_s)) for point in points])
        self._model: LatencyModel
        self._overhead = _OVERHEAD_FIRST_S
        self._level: tuple[int, int] | None = None
        #: by level; these are a few hundred at most
        self._models: dict[tuple[int, int], LatencyModel] = {}
        self._inflation = 1.0
        self._observed_at = 0.0
        #: observed over profiled run time, a slow moving average; 0 before any observation
        self.ratio = 0.0
        self._excess_s = 0.0
        #: batches observed
        self.batches = 0
        self._outside_since: float | None = None
        self._reported_at = -DRIFT_EVERY_S

    def observe(self, now: float, rows: int, run_s: float, turn_s: float, extent: int = 0) -> None:
        """Take in one batch of ``rows`` that ran for ``run_s`` of the ``turn_s`` seconds that it held the device, and
        ended at ``now``. ``extent``: the largest open dimension of its queries."""
        expected_s = self._expected.seconds(rows)
        ratio = run_s / expected_s
        left = self._left(now)
        self._inflation = 1.0 + (self._inflation - 1.0) * left
        # Clipped before averaging: one stall of a second would otherwise look like a slow device for many.
        clipped = min(max(ratio, 1.0), _INFLATION_MOST)
        self._inflation += _INFLATION_WEIGHT * (clipped - self._inflation)
        if self._overhead > _OVERHEAD_FIRST_S:
            self._overhead = _OVERHEAD_FIRST_S + (self._overhead - _OVERHEAD_FIRST_S) * left
        self._overhead += _OVERHEAD_WEIGHT * (min(turn_s - run_s, _OVERHEAD_MOST_S) - self._overhead)
        self._observed_at = now
        if self._size is not None and extent != self._size and ratio < 1.0:
            run_s, ratio = expected_s, 1.0
        self.batches += 1
        weight = max(_DRIFT_WEIGHT, 1.0 / self.batches)
        self.ratio += weight * (ratio - self.ratio)
        self._excess_s += weight * (run_s - expected_s - self._excess_s)
        if TOLERATED[0] <= self.ratio <= TOLERATED[1] or abs(self._excess_s) < DRIFT_LEAST_S:
            self._outside_since = None
        elif self._outside_since is None:
            self._outside_since = now

    def drifted(self, now: float) -> float | None:
        """The ratio, once it has been outside :data:`TOLERATED` for long enough, at most every five minutes; never
        where nobody knows at which size it was measured, for to measure again would tell nothing new."""
        if (
            self._outside_since is None
            or self._size == 0
            or now - self._outside_since < DRIFT_AFTER_S
            or self.batches < DRIFT_BATCHES
            or now - self._reported_at < DRIFT_EVERY_S
        ):
            return None
        self._reported_at = now
        return self.ratio

    def model(self, now: float) -> LatencyModel:
        """Latencies (p95 and overhead) for decisions at ``now``; inflated in steps of 5%, so that there are few models
        to make."""
        left = self._left(now)
        overhead_s = self._overhead
        if overhead_s > _OVERHEAD_FIRST_S:
            overhead_s = _OVERHEAD_FIRST_S + (overhead_s - _OVERHEAD_FIRST_S) * left
        level = int((self._inflation - 1.0) * left / _INFLATION_STEP + 1e-9), math.ceil(overhead_s / _OVERHEAD_STEP_S)
        if level != self._level:
            self._level = level
            # A device that wavers between two levels is asked for the same few models again and again.
            model = self._models.get(level)
            if model is None:
                model = self._models[level] = self._inflated(*level)
            self._model = model
        return self._model

    def _inflated(self, inflation: int, overhead: int) -> LatencyModel:
        more, extra = inflation * _INFLATION_STEP, overhead * _OVERHEAD_STEP_S
        # What is slower is the usual run: the p95's own distance from it is in the profile already, and to scale that
        # too would count the same disturbance twice.
        return LatencyModel(
            [(batch, seconds + more * self._expected.seconds(batch) + extra) for batch, seconds in self._p95]
        )

    def _left(self, now: float) -> float:
        """How much of the last observations' excess still counts (0 to 1)."""
        idle = now - self._observed_at - _HOLDS_S
        return 0.5 ** (idle / _HALF_LIFE_S) if idle > 0.0 else 1.0
