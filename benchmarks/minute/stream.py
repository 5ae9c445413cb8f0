"""The published stream as windows: ten minutes, and the minute that follows."""

from __future__ import annotations

import bz2
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data"
DAY_S = 86_400
MINUTE_S = 60
#: seconds of input that the paper's network gets
PAST_S = 600
#: days that may be fitted; the two that follow are for the comparison
FITTED_DAYS = 14


def rates() -> np.ndarray:
    """Return the queries of each second of 16 days.

    Zeros at the end of each day are seconds that were not recorded; they count as published.
    """
    with bz2.open(PUBLISHED / "infadapter" / "twitter_qps.txt.bz2", "rt") as file:
        return np.array([float(line) for line in file])


def starts(first_day: int, days: int, step_s: int = MINUTE_S) -> np.ndarray:
    """Return moments to forecast at, in seconds since the first day began.

    They are within ``days`` days from ``first_day`` (1 is the first), with ten minutes of the stream before them and a
    minute of these days after them.
    """
    first, last = (first_day - 1) * DAY_S, (first_day - 1 + days) * DAY_S
    return np.arange(max(first, PAST_S), last - MINUTE_S + 1, step_s)


def maxima(seconds: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The largest second of the minute that begins at each of ``at``."""
    return sliding_window_view(seconds, MINUTE_S).max(axis=1)[at]


def minutes_before(seconds: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the largest seconds of the ten minutes before each of ``at``.

    The oldest is first; shape (moments, 10).
    """
    highest = sliding_window_view(seconds, MINUTE_S).max(axis=1)
    return np.stack([highest[at - past] for past in range(PAST_S, 0, -MINUTE_S)], axis=1)
