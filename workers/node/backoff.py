"""Pauses before an executor is started again: the pure half of supervision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartTiming:
    """Times of restarts, in seconds.

    The first restart after ``steady`` seconds of good work comes at once; the next ones after ``first``, doubled up to
    ``longest``. From ``limit`` deaths in a row on, the device counts as down, and attempts go on every ``longest``.
    """

    first: float = 0.5
    longest: float = 15.0
    steady: float = 30.0
    limit: int = 5
    answer: float = 60.0
    """how long a started executor may take to answer on its socket (loading CUDA takes its time)"""
    reattach: float = 5.0
    """how long an executor that an earlier daemon started may take to answer: it is ready, so this is generous"""
    silent: float = 10.0
    """seconds without a report (one is due every second) after which an executor counts as hung"""
    hung: float = 3.0
    """the same for one that is stopped or takes no CPU time, unlike one that a busy box starves; batches that keep
    it from reporting for so long take CPU time"""
    probe: float = 30.0
    """time between two looks for devices that were not there when the daemon started"""
    term: float = 3.0
    """how long an executor may take to end when asked to, before it is killed"""


class RestartBackoff:
    """Counts deaths in a row; gives the pause after each."""

    def __init__(self, timing: RestartTiming):
        self._timing = timing
        self.deaths = 0

    @property
    def crash_looping(self) -> bool:
        return self.deaths >= self._timing.limit

    def died(self, healthy_s: float) -> float:
        """Count a death after so many healthy seconds; return the pause in seconds."""
        timing = self._timing
        if healthy_s >= timing.steady:
            self.deaths = 0
        self.deaths += 1
        if self.crash_looping:
            return timing.longest
        if self.deaths == 1:
            return 0.0
        return min(timing.longest, timing.first * 2 ** (self.deaths - 2))
