"""Whether figures grow while something runs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

#: whether something holds that must, and the figures
Verdict = tuple[bool, str]
#: spans of equal time whose medians the slope goes through
PARTS = 60


@dataclass(frozen=True)
class Limit:
    """Growth that is allowed: a share of the median, and ``least`` whatever that is."""

    share: float
    least: float
    unit: str


def growth(name: str, limit: Limit, moments: np.ndarray, values: np.ndarray) -> Verdict:
    """Whether samples grew too much, by the Theil-Sen slope through medians of parts of equal time.

    That is the median of the slopes of all pairs (Sen, 1968), which a few bad moments of the machine do not move.
    """
    span = float(moments[-1] - moments[0])
    places = ((moments - moments[0]) / max(span, 1e-9) * PARTS).astype(int).clip(max=PARTS - 1)
    medians = [(place, np.median(values[places == place])) for place in np.unique(places)]
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(medians, 2)]
    grown = float(np.median(slopes)) * PARTS if slopes else 0.0
    allowed = max(limit.share * float(np.median(values)), limit.least)
    text = f"{name} grew by {grown:.2f} {limit.unit} (at most {allowed:.1f})"
    return grown <= allowed, " ".join(text.split())
