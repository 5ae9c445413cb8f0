"""Proteus without one of its parts (Section 6.5). Without placement: :mod:`.sommelier`."""

from __future__ import annotations

from dataclasses import replace

from .. import proteus
from ..problem import Allocation, CandidateVariant, LatencyProfile, Problem
from ..reasons import reasons
from .clipper import only


def without_model_selection(problem: Problem) -> Allocation:
    """Proteus w/o MS: Eq. 1 to 7 with each application's most accurate variant only (of those that run within half of
    the SLO), so that accuracy never drops and demand beyond its capacity is left out."""
    return _solved(replace(problem, variants=only(problem, most_accurate=True)))


def without_adaptive_batching(problem: Problem) -> Allocation:
    """Proteus w/o AB: Eq. 1 to 7 with batches of one, in the plan as on the devices: P = 1 / latency(1)."""
    return _solved(replace(problem, variants=tuple(one_by_one(v) for v in problem.variants if not v.excluded)))


def without_query_assignment(problem: Problem) -> Allocation:
    """Proteus w/o QA: the placement of Eq. 1 to 7. Its shares are ignored: it is used with
    the routing ``uniform``, which gives each of an application's devices equally many queries."""
    return _solved(replace(problem, variants=tuple(v for v in problem.variants if not v.excluded)))


def _solved(narrowed: Problem) -> Allocation:
    allocation = proteus.solve(narrowed)
    return replace(allocation, reasons=reasons(narrowed, allocation))


def one_by_one(variant: CandidateVariant) -> CandidateVariant:
    """With batches of one row; where only larger batches were profiled, a single row takes as long as the smallest."""
    profiles = {
        kind: LatencyProfile(
            ((1, profile.points[0][1]),),
            profile.memory_bytes,
            profile.load_s,
            tuple((1, longest_s) for _, longest_s in profile.slowest[:1]),
        )
        for kind, profile in variant.profiles.items()
        if profile.points
    }
    return replace(variant, profiles=profiles)
