"""In-flight queries and batches, and what a query can end in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from workers.dispatch.binding import Dispatch, QueryClass
from workers.protocol import shapes
from workers.protocol.frame_limits import SEVERAL_BYTES
from workers.protocol.frames import Buffer, TensorHeader
from workers.protocol.specs import ApplicationSpec
from workers.v2.query import V2Query

from .errors import GatewayError

#: response parameters that hold the times of a query's stages, in milliseconds; together they are its latency. Queue:
#: the wait in the core and at the device; network: between front, core and device; batch: assembling the batch and
#: encoding its outputs; model: the model's runs
STAGES = ("queue_ms", "network_ms", "batch_ms", "model_ms")
#: seconds after its deadline at which a query is given up, at least; its SLO if longer
GRACE_S = 0.25
#: SLOs after its deadline at which a query is given up where late answers are served
SERVE_SLOS = 10.0


class Run(msgspec.Struct, eq=False):
    """A batch's run as its executor reported it; shared by its answers.

    Attributes:
        accuracy, accuracy_normalized: percent.
        run_s: seconds inside the model's runs.
        rows: of the whole batch.
        occupied_s: seconds that the batch occupied its device.
        network_s: seconds between front, core and device.
        rendered: the latest template of its answers with what it is for (terms, headers) and its filled numbers.
    """

    device: str
    variant: str
    accuracy: float
    accuracy_normalized: float
    run_s: float
    rows: int
    occupied_s: float
    network_s: float
    rendered: tuple | None = None

    def stages_ms(self) -> tuple[float, float, float]:
        return (
            round(max(0.0, self.network_s) * 1e3, 3),
            round(max(0.0, self.occupied_s - self.run_s) * 1e3, 3),
            round(self.run_s * 1e3, 3),
        )


class Answer(msgspec.Struct, eq=False):
    """A result of a run.

    Attributes:
        queue_ms: the first of :data:`STAGES`.
        headers, parts: of its outputs, packed.
    """

    run: Run
    queue_ms: float
    headers: tuple[TensorHeader, ...]
    parts: Sequence[Buffer]

    def parameters(self) -> dict[str, str | float | int]:
        run = self.run
        return {
            "variant": run.variant,
            "accuracy": run.accuracy,
            "device": run.device,
            "batch_size": run.rows,
            **dict(zip(STAGES, (self.queue_ms, *run.stages_ms()), strict=True)),
        }


Outcome = Answer | GatewayError
#: takes a query's outcome once, and returns the error that the client got instead of an answer, if any
Answering = Callable[["InFlightQuery", Outcome], GatewayError | None]


class InFlightBatch(msgspec.Struct, eq=False):
    """A batch at its device.

    Attributes:
        left: its queries that have no answer yet.
        ran: rows and seconds of its run, once an answer has reported them.
    """

    batch: Dispatch
    left: int
    ran: tuple[int, float] | None = None


class InFlightQuery:
    """An unanswered query. Times are seconds on the gateway's monotonic clock.

    Attributes:
        answer: None once it was called, or the query was withdrawn.
        context: the edge's own.
        due: when its answer must be back.
        expires: when it is given up.
        deadline: for the binding: ``due``, until a query of an application that serves late answers may take any time.
        reservation: the binding's own.
        batch: the :class:`~.binding_driver.BindingDriver`'s.
        key: equal for queries of the application that may run in one batch.
        front: receives its answer.
        core: decides about it.
        tries: how often it was sent to a device.
        losses: how often the link to its device was lost.
        suspected: it, or another one with its inputs, was in flight at a crash (see :mod:`.suspects`).
        tried_alone: whether its trial has begun.
        client: hash of its API key.
    """

    # Class attributes, since most queries end with most of these unchanged.
    batch: InFlightBatch | None = None
    reservation: Any = None
    front: Any = None
    core: Any = None
    client: str = ""
    device: str | None = None
    error: GatewayError | None = None
    losses: int = 0
    sent_at: float = 0.0
    suspected: bool = False
    tried_alone: bool = False
    tries: int = 0

    def __init__(
        self,
        id: int,
        spec: ApplicationSpec,
        query: V2Query,
        variant: str | None,
        read_at: float,
        answer: Answering,
        context: Any,
    ):
        terms = query.terms
        if terms.key is None:
            whole = [header.shape for header in terms.shape.inputs]
            terms.key, terms.size = shapes.key(spec, whole), shapes.size_class(spec, whole)
        self.id = id
        self.spec = spec
        self.query = query
        self.rows: int = terms.rows
        self.key = terms.key
        self.query_class = QueryClass(spec.name, terms.size)
        self.variant = variant
        self.arrived = read_at
        budget, latency_s = spec.slo_s, query.latency_s
        due: float = read_at + (budget if latency_s is None or latency_s > budget else latency_s)
        self.due = self.deadline = due
        self.expires = due + (SERVE_SLOS * budget if spec.late == "serve" else max(budget, GRACE_S))
        self.answer: Answering | None = answer
        self.context = context


def pieces(flights: list[InFlightQuery]) -> list[list[InFlightQuery]]:
    """Split queries so that the inputs in one message stay small."""
    if sum([flight.query.terms.nbytes for flight in flights]) <= SEVERAL_BYTES:
        return [flights]
    groups: list[list[InFlightQuery]] = [[]]
    size = 0
    for flight in flights:
        nbytes = flight.query.terms.nbytes
        if groups[-1] and size + nbytes > SEVERAL_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(flight)
        size += nbytes
    return groups
