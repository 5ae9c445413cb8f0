"""Whether figures grow while something runs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from .figures import Row

#: whether something holds that must, and the figures
Verdict = tuple[bool, str]


@dataclass(frozen=True)
class Limit:
    """Growth that is allowed: a share of the median, and ``least`` whatever that is."""

    share: float
    least: float
    unit: str


@dataclass(frozen=True)
class Growth:
    """``grown``: over the samples' time."""

    name: str
    limit: Limit
    median: float
    grown: float

    @property
    def allowed(self) -> float:
        return max(self.limit.share * self.median, self.limit.least)

    @property
    def verdict(self) -> Verdict:
        text = f"{self.name} grew by {self.grown:.2f} {self.limit.unit} (at most {self.allowed:.1f})"
        return self.grown <= self.allowed, " ".join(text.split())

    @property
    def row(self) -> Row:
        return {"": self.name, "median": self.median, "grown": self.grown, "at most": self.allowed}


def growth(name: str, limit: Limit, moments: np.ndarray, values: np.ndarray, parts: int = 60) -> Growth:
    """The growth of samples, by the Theil-Sen slope through medians of parts of equal time.

    That is the median of the slopes of all pairs (Sen, 1968), which a few bad moments of the machine do not move.
    """
    span = float(moments[-1] - moments[0])
    places = ((moments - moments[0]) / max(span, 1e-9) * parts).astype(int).clip(max=parts - 1)
    medians = [(place, np.median(values[places == place])) for place in np.unique(places)]
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(medians, 2)]
    grown = float(np.median(slopes)) * parts if slopes else 0.0
    return Growth(name, limit, float(np.median(values)), grown)
