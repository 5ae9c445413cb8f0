"""The interface of batch policies: pure decisions over one queue.

It is one application's queue on one device.

A policy never sleeps, does no I/O and reads no clock: ``now`` is an argument (seconds, any monotonic origin). A policy
object belongs to one queue and may keep state between calls (Clipper's does); identical calls give identical decisions.
The values below are msgspec structs: they are made once a decision, and a frozen dataclass takes several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Protocol

import msgspec

from ..latency import LatencyModel
from ..policy_tables import PolicySet
from .load_monitor import LoadMonitor


class Waiting(Protocol):
    """A query that waits. Times in seconds on the caller's clock; ``rows`` >= 1."""

    id: int
    arrived: float
    deadline: float
    rows: int


class Candidate(msgspec.Struct, frozen=True):
    """A resident variant that a queue may run.

    Attributes:
        latency: seconds by rows that decisions count on (live: a high quantile).
        max_batch: the most rows of one batch; a larger single query runs alone, in pieces.
        typical: seconds that a batch usually takes: a query that would be late even so is hopeless. None: ``latency``.
        largest: the most rows of one run; more than ``max_batch`` where the plan gives it less. For policies by load.
    """

    variant: Hashable
    accuracy: float
    latency: LatencyModel
    max_batch: int
    typical: LatencyModel | None = None
    largest: int = 0


class QueueView(msgspec.Struct, frozen=True):
    """The state of a queue that a policy decides by.

    Attributes:
        queue: waiting queries by (deadline, id), at least one.
        candidates: at least one; the first is the default choice, planned ones come before others.
        serve_late: answer all queries, those that can be in time first; False: refuse what cannot be in time.
        slack_s: how late timers may be; a policy that waits must be ready that much earlier.
    """

    now: float
    queue: Sequence[Waiting]
    candidates: Sequence[Candidate]
    serve_late: bool = False
    slack_s: float = 0.0
    policies: PolicySet | None = None
    load: LoadMonitor | None = None


class Decision(msgspec.Struct, frozen=True):
    """A policy's decision for now.

    A policy that neither runs nor drops everything names a time later than now.

    Attributes:
        run: queries to run now as one batch; empty: none.
        candidate: what runs them.
        drop: queries to refuse as late.
        wait_until: where ``run`` is empty, ask again then; inf: only when something arrives.
    """

    run: Sequence[Waiting] = ()
    candidate: Candidate | None = None
    drop: Sequence[Waiting] = ()
    wait_until: float = math.inf


class BatchPolicy:
    def decide(self, view: QueueView) -> Decision:
        """The decision for this moment; must not change the view."""
        raise NotImplementedError

    def observe(self, rows: int, late: int) -> None:
        pass
