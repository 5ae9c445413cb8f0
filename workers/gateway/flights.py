"""A query under way in the gateway, and what it can end in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workers.dispatch.classes import class_of
from workers.protocol import shapes, v2
from workers.protocol.frames import Result
from workers.protocol.specs import ApplicationSpec

from .errors import GatewayError


@dataclass(frozen=True)
class Answer:
    """A result: the executor's message and one part of the body for each of its outputs."""

    result: Result
    parts: list[memoryview]
    device: str

    def parameters(self) -> dict[str, str | float | int]:
        """What the response tells about itself (accuracy in percent, times in milliseconds)."""
        result = self.result
        return {
            "variant": result.variant,
            "accuracy": result.accuracy,
            "device": self.device,
            "queue_ms": round(result.queue_s * 1e3, 3),
            "batch_size": result.batch_rows,
        }


Outcome = Answer | GatewayError


class Flight:
    """A query under way. Times are seconds on the gateway's monotonic clock.

    ``due``: when its answer must be back. ``deadline`` is the dispatcher's: the same, until it decides that a query of
    an application that serves late answers may take any time. ``booking`` is the dispatcher's too, and ``batch`` that
    of :class:`~.holding.Holding`.
    ``key``: what queries of the application must share to run together. ``size``: its size class; ``booked_as``: what
    that is called where it is booked. ``tried``: devices it was sent to; ``tries``: how often it was.
    """

    __slots__ = (
        "allowed",
        "answer",
        "arrived",
        "batch",
        "booked_as",
        "booking",
        "bytes",
        "deadline",
        "device",
        "due",
        "error",
        "id",
        "key",
        "query",
        "rows",
        "sent_at",
        "size",
        "spec",
        "timer",
        "tried",
        "tries",
        "variant",
    )

    def __init__(self, id: int, spec: ApplicationSpec, query: v2.Query, variant: str | None, read_at: float, answer):
        self.id = id
        self.spec = spec
        self.query = query
        self.rows = query.rows
        given = [header.shape for header in query.tensors]
        self.key = shapes.key(spec, given)
        self.size = shapes.size_class(spec, given)
        self.booked_as = class_of(spec.name, self.size)
        self.variant = variant
        self.arrived = read_at
        budget = spec.slo_s if query.latency_s is None else min(spec.slo_s, query.latency_s)
        self.due = self.deadline = read_at + budget
        self.answer: Callable[[Outcome], None] | None = answer
        self.allowed: set[str] | None = None
        self.bytes = sum(header.nbytes for header in query.tensors)
        self.device: str | None = None
        self.sent_at = 0.0
        self.tried: set[str] = set()
        self.tries = 0
        self.error: GatewayError | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.booking: Any = None
        self.batch: Any = None
