"""A worker: its variants with their times, its SLO, and the slack times of its states. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: longest queue of a state, and slack times of fixed length (Section 6)
QUEUE, LENGTHS = 32, 100


@dataclass(frozen=True)
class WorkerVariant:
    id: str
    accuracy: float
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Worker:
    """A worker with resident variants.

    Attributes:
        variants: the undominated ones, the fastest first (:func:`undominated`).
        queue: rows of the longest queue that is distinguished; some variant takes as many in a batch.
        slacks: ascending, from 0 to the SLO.
    """

    slo_s: float
    variants: tuple[WorkerVariant, ...]
    queue: int
    slacks: tuple[float, ...]

    def seconds(self) -> np.ndarray:
        """By variant and rows (0 to ``queue``); inf: it takes no such batch."""
        table = np.full((len(self.variants), self.queue + 1), math.inf)
        for index, variant in enumerate(self.variants):
            seconds_by_rows = variant.seconds[: self.queue]
            table[index, 1 : 1 + len(seconds_by_rows)] = seconds_by_rows
        return table

    def capacity(self) -> float:
        """Rows/s of the best batch within the SLO."""
        rates = [
            rows / seconds
            for variant in self.variants
            for rows, seconds in enumerate(variant.seconds[: self.queue], 1)
            if seconds <= self.slo_s
        ]
        return max(rates, default=0.0)


def worker(
    slo_s: float, variants: Sequence[WorkerVariant], lengths: int | None = LENGTHS, queue: int = QUEUE
) -> Worker | None:
    """Make a worker with the undominated variants.

    Args:
        lengths: slack times of fixed length (Section 4.2.2); None: one for each time that a batch takes (4.2.1).
        queue: at most; no longer than the largest batch.

    Returns:
        None: no variant answers a single row within the SLO.
    """
    kept = undominated([variant for variant in variants if variant.seconds and variant.seconds[0] <= slo_s])
    if not kept:
        return None
    queue = max(1, min(queue, max(len(variant.seconds) for variant in kept)))
    if lengths is not None:
        slacks = [slo_s * step / lengths for step in range(lengths)]
    else:
        times = {s for variant in kept for s in variant.seconds[:queue] if s < slo_s}
        slacks = [0.0, *sorted(times)]
    return Worker(slo_s, kept, queue, (*slacks, slo_s))


def undominated(variants: Sequence[WorkerVariant]) -> tuple[WorkerVariant, ...]:
    """The fastest for a single row first (Section 4.3.3)."""
    kept: list[WorkerVariant] = []
    for variant in sorted(variants, key=lambda v: (-v.accuracy, v.seconds[0], v.id)):
        if not any(_dominates(other, variant) for other in kept):
            kept.append(variant)
    return tuple(sorted(kept, key=lambda v: (v.seconds[0], v.accuracy)))


def _dominates(variant: WorkerVariant, other: WorkerVariant) -> bool:
    if len(variant.seconds) < len(other.seconds):
        return False
    return all(own <= its for own, its in zip(variant.seconds, other.seconds, strict=False))
