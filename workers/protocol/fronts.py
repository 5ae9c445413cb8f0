"""Messages between fronts and a core: frames as in :mod:`.frames`.

They go over the core's unix socket or, on another box, over TLS.

A front sends :class:`~.frames.Hello` with the role ``front``, and then queries in the order of arrival, those of one
turn of its event loop in one frame an application. The core sends configuration and status on Hello and at each change,
and answers each query once, by :class:`Answered` or :class:`Failed`. Numbers are the front's own. Times are durations
in seconds.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .control import GatewayConfig
from .frames import Frame, Hello, RequestShape, TensorHeader
from .gateways import ApplicationTotals, CoreStatus, Ping, Pong
from .specs import ApplicationStats, Seconds

#: any time that a client may ask for: bounded, so that it is a number
AnyTime = Annotated[float, msgspec.Meta(ge=0)]


class SubmitQueries(Frame, frozen=True):
    """Queries that fit their application; the body holds the inputs of each in turn."""

    application: str
    shapes: tuple[RequestShape, ...]
    #: (number, place of its shape in ``shapes``, age since it was read, time to answer it from then, named variant,
    #: least accuracy, hash of its API key); the time, variant and accuracy are None unless the client asked for them
    queries: tuple[tuple[int, int, Seconds, AnyTime | None, str | None, float | None, str], ...]


class WithdrawQueries(Frame, frozen=True):
    """Queries whose clients no longer wait for answers."""

    numbers: tuple[int, ...]


class FrontStats(Frame, frozen=True):
    applications: dict[str, ApplicationStats]


class FrontTotals(Frame, frozen=True):
    """A front's totals; to a front, those of its box's others."""

    applications: dict[str, ApplicationTotals] = {}
    keys: dict[str, int] = {}  # queries by hash of each API key with a rate


class Configure(Frame, frozen=True):
    config: GatewayConfig


class Status(Frame, frozen=True):
    status: CoreStatus


class Answered(Frame, frozen=True):
    """Answers of one run; other fields are as in :class:`~.frames.Results`.

    The body holds the outputs of each query in turn.
    """

    device: str
    variant: str
    accuracy: float
    accuracy_normalized: float
    run_s: float
    batch_rows: int
    outputs: tuple[tuple[TensorHeader, ...], ...]
    #: (number, place of its outputs in ``outputs``, time from arrival to the run)
    queries: tuple[tuple[int, int, float], ...]
    occupied_s: float = 0.0


class Failed(Frame, frozen=True):
    number: int
    error: str  # the name of its class in :mod:`workers.gateway.errors`
    message: str
    retry_after_s: float | None
    handed_back: bool = False  # nothing has run, and the next core is to decide


ToCore = Hello | Ping | SubmitQueries | WithdrawQueries | FrontStats | FrontTotals
FromCore = Configure | FrontTotals | Status | Answered | Failed | Pong
