"""Policies for a range of loads (Section 6). Pure.

They are made so close that neighbours are nearly as accurate. Policies are remembered, and the loads that they are made
for are fixed parts of the workers' capacity, so that plans that follow one another make few new ones. A plan gets those
for the loads around its demand (:func:`anchors`); as the load leaves these, the next plan has others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from workers.dispatch.policy_tables import LoadPolicy, Steps

from ..paper import Expected
from .arrivals import round_robin
from .expectation import expected
from .solve import Policy, solve
from .transitions import Chain
from .worker import Worker

#: percent of expected accuracy by which neighbouring policies may differ, as in the paper
STEP = 1.0
#: the same where the measured load mostly is: up to :data:`NEAR` times the demand, or down to its inverse
NEAR_STEP, NEAR = 0.5, 1.15
#: loads this close need no policy between them, whatever their accuracies
NEAREST = 1.03
#: loads a plan has policies for, as multiples of its demand: from the first, or lower, to the second, or higher
BELOW, ABOVE = 1 / 1.2, 1.4
#: half octaves below the capacity that have policies
ANCHORS = 12
#: expected violations above which a policy does not meet its load: the paper leaves out such points of its figures
MET = 0.05
#: policies of a plan at most
MOST_LOADS = 64
#: policies that are remembered
REMEMBERED = 1024


@dataclass(frozen=True)
class EvaluatedPolicy:
    policy: LoadPolicy
    expected: Expected


#: whether there is time for more
InTime = Callable[[], bool]


def policies(
    worker: Worker, workers: float, demand: float, in_time: InTime = lambda: True
) -> tuple[EvaluatedPolicy, ...]:
    """Policies of one of ``workers`` for loads around their demand (items/s), by load.

    Args:
        in_time: asked before each policy but the first, which is that for the next load above the demand.
    """
    # Above the capacity of all workers no policy meets the load.
    ends = anchors(worker.capacity() * workers, demand)
    made: dict[float, EvaluatedPolicy] = {}
    for load in sorted(ends, key=lambda load: (load < demand, abs(load - demand))):
        if made and not in_time():
            break
        made[load] = evaluated(worker, workers, load)
    # Without its ends there is nothing to divide.
    open_pairs = list(pairwise(ends)) if len(made) == len(ends) else []
    while open_pairs and len(made) < MOST_LOADS:
        low, high = open_pairs.pop()
        below, above = made[low].expected, made[high].expected
        step = NEAR_STEP if low < NEAR * demand and NEAR * high > demand else STEP
        if abs(below.accuracy - above.accuracy) <= step or high <= NEAREST * low or below.violation_rate > MET:
            continue
        if not in_time():
            break
        between = (low + high) / 2
        made[between] = evaluated(worker, workers, between)
        open_pairs += [(low, between), (between, high)]
    return tuple(made[load] for load in sorted(made) if made[load].expected.violation_rate <= MET)


def anchors(capacity: float, demand: float) -> list[float]:
    """Loads (items/s) half octaves below the capacity, around a demand."""
    every = [capacity * 2.0 ** (-step / 2) for step in range(ANCHORS, -1, -1)]
    low = max([place for place, load in enumerate(every) if load <= BELOW * demand], default=0)
    high = min([place for place, load in enumerate(every) if load >= ABOVE * demand], default=ANCHORS)
    return every[min(low, ANCHORS - 1) : max(high, low + 1) + 1]


@lru_cache(maxsize=REMEMBERED)
def evaluated(worker: Worker, workers: float, load: float) -> EvaluatedPolicy:
    """The policy of one of ``workers`` for their load (items/s)."""
    chain = Chain(worker, round_robin(load, workers))
    policy = solve(chain)
    return EvaluatedPolicy(LoadPolicy(load, steps(policy)), expected(chain, policy.choice))


def steps(policy: Policy) -> Steps:
    """A policy's choices by queued rows, from 1: (least slack in seconds, variant's place), ascending."""
    made = []
    for row in policy.choice[1:]:
        row_steps = [(0.0, int(row[0]))]
        for slack, variant in zip(policy.worker.slacks[1:], row[1:], strict=True):
            if variant != row_steps[-1][1]:
                row_steps.append((round(slack, 6), int(variant)))
        made.append(tuple(row_steps))
    return tuple(made)
