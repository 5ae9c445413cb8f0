"""Policies for a range of loads: neighbours differ by at most one percent of expected accuracy (Section 6). Pure.

Policies are remembered, and the loads that they are made for are fixed parts of a worker's capacity, so that plans that
follow one another make few new ones. A plan gets those for the octave of loads around its demand and the next higher
one; as the load leaves these, the next plan has others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from workers.dispatch.published.policy_tables import LoadPolicy

from .arrivals import Stream
from .expectation import Expected, expected
from .solve import Policy, Weight, solve
from .transitions import Chain
from .worker import Worker

#: percent of expected accuracy by which neighbouring policies may differ
STEP = 1.0
#: loads this close need no policy between them, whatever their accuracies
NEAREST = 1.02
#: octaves below the capacity that have policies
OCTAVES = 6
#: policies that are remembered
REMEMBERED = 1024


@dataclass(frozen=True)
class Rung:
    """A policy in the form that workers look up, and its expectation."""

    policy: LoadPolicy
    expected: Expected


#: the arrivals at the worker when its application has this load, in items/s
StreamOf = Callable[[float], Stream]


def policies(worker: Worker, stream: StreamOf, capacity: float, demand: float, weigh: Weight) -> tuple[Rung, ...]:
    """Policies for loads around a demand, by load.

    Args:
        capacity: of all workers, items/s; above it there is no policy.
    """
    octave = min(OCTAVES, max(0, math.floor(-math.log2(demand / capacity)))) if demand > 0 else OCTAVES
    ends = sorted({capacity * 2.0**-step for step in (octave + 1, octave, max(octave - 1, 0))})
    rungs = {load: rung(worker, stream(load), load, weigh) for load in ends}
    open_pairs = list(pairwise(ends))
    while open_pairs:
        low, high = open_pairs.pop()
        if abs(rungs[low].expected.accuracy - rungs[high].expected.accuracy) <= STEP or high <= NEAREST * low:
            continue
        between = (low + high) / 2
        rungs[between] = rung(worker, stream(between), between, weigh)
        open_pairs += [(low, between), (between, high)]
    return tuple(rungs[load] for load in sorted(rungs))


@lru_cache(maxsize=REMEMBERED)
def rung(worker: Worker, stream: Stream, load: float, weigh: Weight) -> Rung:
    """The policy for a stream, which belongs to a load of the application."""
    chain = Chain(worker, stream)
    policy = solve(worker, stream, weigh, chain)
    return Rung(LoadPolicy(load, steps(policy)), expected(policy, chain=chain))


def steps(policy: Policy) -> tuple[tuple[tuple[float, int], ...], ...]:
    """A policy's choices by queued rows, from 1: (least slack in seconds, place of the variant), ascending."""
    slacks = policy.worker.slacks
    made = []
    for row in policy.choice[1:]:
        mine = [(0.0, int(row[0]))]
        for slack, variant in zip(slacks[1:], row[1:], strict=True):
            if variant != mine[-1][1]:
                mine.append((slack, int(variant)))
        made.append(tuple(mine))
    return tuple(made)
