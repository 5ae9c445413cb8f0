"""Proteus without one of its parts (Section 6.5).

The one without model placement is in :mod:`.sommelier`.
"""

from __future__ import annotations

from dataclasses import replace

from .. import proteus
from ..problem import Allocation, CandidateVariant, LatencyProfile, Problem
from ..reasons import reasons
from .clipper import only


def without_model_selection(problem: Problem) -> Allocation:
    """Solve Proteus w/o MS: each application has its most accurate variant only.

    Eq. 1 to 7 have the most accurate of the variants that run within half of the SLO, so that accuracy never drops and
    demand beyond its capacity is left out.
    """
    return _solved(replace(problem, variants=only(problem, most_accurate=True)))


def without_adaptive_batching(problem: Problem) -> Allocation:
    """Solve Proteus w/o AB: Eq. 1 to 7 with batches of one row.

    Batches have one row in the plan as on the devices: P = 1 / latency(1).
    """
    return _solved(replace(problem, variants=tuple(one_by_one(v) for v in problem.variants if not v.excluded)))


def without_query_assignment(problem: Problem) -> Allocation:
    """Solve Proteus w/o QA: Eq. 1 to 7, of which only the placement is used.

    Its shares are ignored: it is used with the routing ``uniform``, which gives each of an application's devices
    equally many queries.
    """
    return _solved(replace(problem, variants=tuple(v for v in problem.variants if not v.excluded)))


def _solved(narrowed: Problem) -> Allocation:
    allocation = proteus.solve(narrowed)
    return replace(allocation, reasons=reasons(narrowed, allocation))


def one_by_one(variant: CandidateVariant) -> CandidateVariant:
    """Return the variant with batches of one row only.

    Where only larger batches were profiled, a single row takes as long as the smallest one.
    """
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
