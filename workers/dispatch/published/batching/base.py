"""The interface of batch policies: pure decisions over one application's queue on one device.

A policy never sleeps, does no I/O and reads no clock; ``now`` is handed in (seconds, any monotonic origin). The live
executor and the simulator call the same objects. A policy object belongs to one (device, application) lane and may
keep state between calls (AIMD does); identical call sequences give identical decisions.

The data below are msgspec structs because they are made once a decision, and frozen dataclasses take several times as
long to make.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...latency import LatencyModel


class Waiting(Protocol):
    """A query that waits. Times in seconds on the caller's clock; ``rows`` >= 1."""

    id: int
    arrived: float
    deadline: float
    rows: int


class Candidate(msgspec.Struct, frozen=True):
    """A resident variant that this lane may run. ``latency`` tells seconds for any number of rows; ``max_batch`` rows
    are the most that one turn may take (a larger single query runs alone, in pieces).

    ``latency`` is what decisions count on, a high quantile live. ``typical``: what a batch usually takes; only a query
    that would be late even so is given up. None: the same."""

    variant: int
    accuracy: float
    latency: LatencyModel
    max_batch: int
    planned: bool = True
    typical: LatencyModel | None = None


class LaneView(msgspec.Struct, frozen=True):
    """What a policy may know.

    ``queue``: waiting queries by (deadline, id), earliest first. ``candidates``: at least one; the planned ones first,
    the first is the default choice. ``late``: ``shed`` (refuse what cannot be in time) or ``serve`` (answer all, those
    that can be in time first). ``blocking_s``: how long other lanes may hold the device once this one waits
    (0 on a dedicated device): a policy that waits must be ready that much earlier.
    """

    now: float
    queue: Sequence[Waiting]
    candidates: Sequence[Candidate]
    late: str = "shed"
    blocking_s: float = 0.0


class Decision(msgspec.Struct, frozen=True):
    """What to do now.

    ``drop``: ids to refuse as late, decided together with the rest. ``run``: ids to run now as one batch on
    ``variant`` (empty: do not run). ``wait_until``: when ``run`` is empty, ask again then (inf: only when something
    arrives). A policy that neither runs nor drops must name a time later than now, or inf with an empty queue.
    """

    run: tuple[int, ...] = ()
    variant: int | None = None
    drop: tuple[int, ...] = ()
    wait_until: float = math.inf


class Outcome(msgspec.Struct, frozen=True):
    """A finished batch: ``rows`` run, seconds it took, and how many of its queries were late."""

    variant: int
    rows: int
    run_s: float
    queries: int
    late: int


class BatchPolicy(Protocol):
    """Decides which queries run, on which variant, now or not before when."""

    def decide(self, view: LaneView) -> Decision:
        """The decision for this moment; must not change the view."""

    def observe(self, outcome: Outcome) -> None:
        """Told of each batch that this lane ran."""
