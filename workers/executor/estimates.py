"""Latency of a variant's batches: its profile, and drift from it. Pure.

*Drift* is long-lived: the profile no longer describes the device and should be measured again. Each size class has an
estimate of its own. Most queries are smaller than the largest of their class, at which it was measured: that they take
less is no drift.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.dispatch.latency import LatencyModel
from workers.protocol.specs import ProfilePoint

#: observed over profiled run times that are no drift
TOLERATED = (0.67, 1.5)
#: drift is reported after this many seconds and batches outside, and again after this many seconds
DRIFT_AFTER_S, DRIFT_BATCHES, DRIFT_EVERY_S = 20.0, 50, 300.0
#: a batch that is off by fewer seconds is as profiled, whatever the ratio: runs back to back are quicker than single
#: ones
DRIFT_LEAST_S = 0.001
_DRIFT_WEIGHT = 0.02


class LatencyEstimate:
    """Latency by rows of one variant on this device.

    Args:
        points: the profile; p95 feeds decisions, the mean is what observations are compared with (both are means
            over runs, so a well profiled variant has a ratio of 1).
        size: of the queries that were measured; 0: unknown (the application leaves dimensions open and declares no
            sizes); None: there is only one size.
    """

    def __init__(self, points: Sequence[ProfilePoint], size: int | None = None):
        self._size = size
        #: the p95
        self.profiled = LatencyModel([(point.batch, point.p95_s) for point in points])
        self._expected = LatencyModel([(point.batch, point.mean_s) for point in points])
        #: the median: the time of a batch when nothing gets in its way
        self.typical = LatencyModel([(point.batch, min(point.p50_s, point.p95_s)) for point in points])
        #: observed over profiled run time, a slow moving average; 0 before any observation
        self.ratio = 0.0
        self._excess_s = 0.0
        #: batches observed
        self.batches = 0
        self._outside_since: float | None = None
        self._reported_at = -DRIFT_EVERY_S

    def observe(self, now: float, rows: int, run_s: float, extent: int = 0) -> None:
        expected_s = self._expected.seconds(rows)
        ratio = run_s / expected_s
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
        """Return the ratio if it was out of :data:`TOLERATED` long enough, else None.

        At most every five minutes; never where the measured size is unknown: measuring again would give the same.
        """
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

    def usual_s(self, rows: int) -> float:
        """Return usual seconds of a batch: as profiled (p95), times the ratio if above 1."""
        return self.profiled.seconds(rows) * (self.ratio if self.ratio > 1.0 else 1.0)
