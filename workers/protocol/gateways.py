"""Messages between the gateway processes of one box.

They also go from these to the box's node daemon and supervisor.

On a gateway's admin socket a peer sends :class:`~.frames.Hello` and then any number of
:class:`~.frames.MetricsRequest`, each answered by :class:`~.frames.Metrics`, and of :class:`Ping`.
"""

from __future__ import annotations

import msgspec

from . import frames


class Ping(frames.Frame, frozen=True):
    """Asks whether the process still runs its event loop; answered by :class:`Pong`."""


class Pong(frames.Frame, frozen=True):
    """Answers :class:`Ping`: the event loop runs."""


ToGateway = frames.Hello | frames.MetricsRequest | Ping


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
