"""Messages between the gateway processes of a cluster: frames as in :mod:`.frames`.

On a gateway's admin socket a peer sends :class:`~.frames.Hello` and then any number of
:class:`~.frames.MetricsRequest`, each answered by :class:`~.frames.Metrics`, and of :class:`Ping`.

Fronts and a core talk over the core's unix socket or, on another box, over TLS. A front sends :class:`~.frames.Hello`
with the role ``front``, and then queries in the order of arrival, those of one turn of its event loop in one frame an
application. The core sends configuration and status on Hello and at each change, and answers each query once, by
:class:`Answered` or :class:`Failed`. Numbers are the front's own. Times are durations in seconds.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .control import GatewayConfig
from .frames import Frame, Hello, MetricsRequest, RequestShape, TensorHeader
from .specs import ApplicationStats, Seconds

#: any time that a client may ask for: bounded, so that it is a number
AnyTime = Annotated[float, msgspec.Meta(ge=0)]


class Ping(Frame, frozen=True):
    """Asks whether the process still runs its event loop; answered by :class:`Pong`."""


class Pong(Frame, frozen=True):
    """Answers :class:`Ping`: the event loop runs."""


ToGateway = Hello | MetricsRequest | Ping


class ApplicationTotals(msgspec.Struct, kw_only=True):
    """One application's queries at one gateway since its process started.

    Times are in seconds, summed over queries.

    Attributes:
        in_time, late, dropped, failed, cancelled: queries by how they ended; cancelled: the client left before.
        success_s, queue_s, run_s, rows, batches: of results. Each query counts its part of its batch.
        accuracy_sum, normalized_sum: over the queries in time, as in :class:`.specs.ApplicationStats`.
    """

    in_time: int = 0
    late: int = 0
    dropped: int = 0
    failed: int = 0
    cancelled: int = 0
    success_s: float = 0.0
    queue_s: float = 0.0
    run_s: float = 0.0
    rows: int = 0
    batches: float = 0.0
    accuracy_sum: float = 0.0
    normalized_sum: float = 0.0
    last_success_unix: float = 0.0  # 0 before the first


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    connected: bool
    plan_version: int | None  # None where it is not connected
    warm: tuple[tuple[str, str], ...]  # (application, variant) of all that could run now
    draining: bool
    outstanding: int  # queries in flight there


class CoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    adopted: int | None = None  # version of the plan that all applications follow; None while some still move
    newest: int = 0  # version of the newest plan
    cold: tuple[str, ...] = ()  # applications of the newest plan that no device can serve now
    routes: dict[str, tuple[tuple[str, float], ...]] = {}  # by application, (device, share) of those that serve it
    name: str = ""  # the gateway's that it belongs to
    leads: bool = True  # it has devices. Cores of gateways that have none stand by
    held: int = 0  # queries that wait
    suspect_inputs: int = 0  # remembered inputs that were in flight at a crash
    devices: dict[str, DeviceStatus] = {}


# --- between fronts and a core ----------------------------------------------------------------------------------------


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
    began: float = 0.0  # of the front's process, on the clock of the box, since when they count


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
