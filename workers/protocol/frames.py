"""Frames between an executor and its peers (gateways, the node daemon).

A frame is a typed header and raw tensor bytes. How it looks on the wire is :mod:`.framing`'s;
:mod:`.frame_connection` sends and receives it. Its header is MessagePack of one message below. Tensors in the body
stand in the order in which the header names them; the layout is that of the V2 binary extension (row-major,
little-endian; BYTES elements with a u32 length each), so a gateway relays a client's bytes without touching them.

Times in messages are *time left* or durations in seconds, never clock readings: boxes' clocks differ.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .control import Drift, FaultReport, Overload, ProfileDone, ProfileFailed, ProfileOrder, ProfileProgress
from .specs import ApplicationSpec, Count, DevicePlan, DeviceState, DeviceStats, Name, Percent, Ratio, Seconds, Text


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all frame headers, which are sent as arrays."""


class TensorHeader(msgspec.Struct, frozen=True, array_like=True):
    name: str
    datatype: str  # of V2
    shape: tuple[int, ...]  # with the batch first
    nbytes: int  # how many bytes of the body are its


# --- both ways ------------------------------------------------------------------------------------------------------


class Hello(Frame, frozen=True):
    """First frame of each connection's client."""

    role: Name  # ``gateway``, ``node`` or ``metrics``; towards a core also ``front``
    name: Name
    #: this gateway asks for the device by :class:`AskLease`; another holds it while connected
    leases: bool = False


class WarmVariant(msgspec.Struct, frozen=True, array_like=True):
    """A variant that could run now."""

    id: Count
    name: Name
    application: Name
    accuracy: Percent  # percent
    planned: bool  # part of the plan in force here (else standby or on its way out)


class LearnedOfDevice(msgspec.Struct, frozen=True, array_like=True):
    """A device's latencies as a core has learned them, which the device keeps for the next core.

    Means and mean deviations of observed over expected seconds: of all runs, of the device's scale, and by variant.
    """

    common: tuple[Ratio, Ratio]
    scale: tuple[Ratio, Ratio]
    variants: Annotated[dict[int, tuple[Ratio, Ratio]], msgspec.Meta(max_length=10_000)]


class ExecutorState(Frame, frozen=True):
    """The state of an executor and its device.

    Sent on Hello, at each new plan and each change of warmth or draining, and about ten times a second while rows wait.
    """

    device: Name
    plan_version: Count  # of the plan in force
    warm: Annotated[tuple[WarmVariant, ...], msgspec.Meta(max_length=10_000)]
    draining: bool  # send nothing new
    queued: dict[str, Count]  # rows that wait, by application
    busy_s: Seconds  # seconds until the running batch ends, as expected
    #: by variant's name, why it could not be loaded; under the empty name, why the plan could not be applied
    errors: dict[str, Text] = {}
    learned: LearnedOfDevice | None = None  # by the core that had the device before, for the one that gets it
    #: version of the newest plan received; its residents that are warm are not unloaded. 0: none.
    newest_plan: Count = 0


# --- gateway to executor --------------------------------------------------------------------------------------------


class RequestShape(msgspec.Struct, frozen=True, array_like=True):
    """The properties that many queries share: all but numbers, deadlines and data."""

    rows: int
    inputs: tuple[TensorHeader, ...]  # in the signature's order
    outputs: tuple[str, ...] = ()  # names wanted, empty for all


class RunBatch(Frame, frozen=True):
    """A dispatched batch: queries to run together.

    It runs once everything dispatched before has run.

    Each query is answered once, by a :class:`Results` that names it or by a :class:`Refusal` of its own. One that would
    be late even if it ran alone is refused when its batch is due, unless its application serves late answers; the
    others run all the same. The body holds the first input of every query, in the order of ``queries``, then the second
    one of every query, and so on: each input of a run lies in one piece.
    """

    number: int  # the gateway's own
    application: str
    variant: int  # id
    max_rows: int  # rows that one run may take
    shapes: tuple[RequestShape, ...]
    #: (id, index of its shape in ``shapes``, budget): seconds left for the executor, without the way back
    queries: tuple[tuple[int, int, float], ...]


class ReceivedBatch(Frame, frozen=True, tag="RunBatch"):
    """A :class:`RunBatch` as an executor reads it.

    ``shapes`` recur with each batch and are recognised by their bytes. They may be used as long as the header, which is
    until the next frame is read; :func:`read_shapes` decodes them.
    """

    number: int
    application: str
    variant: int
    max_rows: int
    shapes: msgspec.Raw
    queries: tuple[tuple[int, int, float], ...]


class AskLease(Frame, frozen=True):
    """Asks for :class:`LeaseState` and, if ``wanted``, for the lease itself."""

    number: Count  # returned in the answer
    wanted: bool
    leads: bool  # this core holds another device
    learned: LearnedOfDevice | None = None  # of the device that this core has, for the next one; None: nothing new


class ReleaseLease(Frame, frozen=True):
    """This core dispatches nothing more here, and nothing of it is under way."""

    stops: bool = False  # it gives all of its devices back and does not want them again
    learned: LearnedOfDevice | None = None  # as in :class:`AskLease`


class Withdraw(Frame, frozen=True):
    """The client left; a query that still waits is dropped and not answered."""

    id: int


class Moved(Frame, frozen=True):
    """The gateway routes by this plan; variants of older ones may be unloaded."""

    plan_version: int


# --- executor to gateway --------------------------------------------------------------------------------------------


class LeaseState(Frame, frozen=True):
    """The core from which the device takes batches.

    Sent on Hello of a gateway that asks for leases, before :class:`ExecutorState`; in answer to each :class:`AskLease`;
    and at each change.
    """

    number: Count  # of the question; 0: this is no answer
    epoch: Count  # number of the lease; another core's has another one
    held: bool  # by this connection: batches of no other one are taken
    holder: Name  # name of the core that holds it; empty: none does
    reclaimed: bool  # a core of a higher rank is back: drain the device, then send :class:`ReleaseLease`
    offered: bool = False  # the core that had the device stops: the first that asks gets it


class ResultTensor(msgspec.Struct, frozen=True, array_like=True):
    """One output of several queries, one behind the other."""

    name: str
    datatype: str
    shape: tuple[Count, ...]  # of them all, rows first
    nbytes: Count
    #: bytes of each query's part where rows may differ in length (BYTES); empty: every row takes as many
    sizes: tuple[Count, ...] = ()


class Results(Frame, frozen=True):
    """Answers to queries of one :class:`RunBatch` that want the same outputs.

    Mostly these are all of the batch's queries.

    Their outputs have equal shapes except for their rows. ``ids`` and the body's parts are in the same order; the body
    holds the first output of every query, then the second one, and so on.
    """

    number: int  # of the batch
    ids: tuple[int, ...]
    variant: str
    accuracy: Percent
    accuracy_normalized: Percent
    queue_s: Seconds  # seconds from receipt to start
    run_s: Seconds  # seconds inside the model's runs
    batch_rows: Count  # rows of the whole batch
    occupied_s: Seconds  # seconds of the device's time: ``run_s``, assembling the batch and encoding its outputs
    outputs: tuple[ResultTensor, ...]
    rows: tuple[Count, ...] = ()  # of each query; empty: one row each


class Refusal(Frame, frozen=True):
    id: int
    #: ``late`` (cannot be in time), ``overloaded`` (queue full), ``not_resident``, ``not_leased`` (another core has the
    #: device), ``draining``, ``failed`` (the model raised), ``stopped`` (its run exceeded the watchdog's limit) or
    #: ``invalid`` (the client's fault)
    code: Name
    message: Text
    #: another device may do better. Of a stopped run: it had several queries, any of which may be the one that did not
    #: end.
    retryable: bool


# --- node daemon to executor ----------------------------------------------------------------------------------------


class Apply(Frame, frozen=True):
    """An order to make this the device's plan."""

    plan_version: int
    plan: DevicePlan
    applications: tuple[ApplicationSpec, ...]
    paths: dict[str, str]  # model file by digest, each already in the cache


class Measure(Frame, frozen=True):
    """An order to profile a variant whose files are in the cache."""

    order: ProfileOrder
    path: str
    validation_path: str | None = None


class MeasureCancel(Frame, frozen=True):
    job: int


class Cluster(Frame, frozen=True):
    """Identities of this node and of cores on other boxes; sent on Hello and each change."""

    pem: bytes  # the node's key, certificate chain and authorities; empty: it has no certificate yet
    #: (name, key hash, rank) of the gateways that may connect, as in :class:`.specs.PeerSpec`, from best to worst rank
    cores: tuple[tuple[str, str, int], ...]


class MetricsRequest(Frame, frozen=True):
    """Asks for :class:`Metrics`."""


# --- executor to node daemon ----------------------------------------------------------------------------------------


class ExecutorIdentity(Frame, frozen=True):
    """First frame to a node daemon: see :mod:`workers.identity`."""

    code: Name
    settings: Name
    device: Name


class StateReport(Frame, frozen=True):
    state: DeviceState


class StatsReport(Frame, frozen=True):
    stats: DeviceStats


class Relay(Frame, frozen=True):
    """A message for the control plane; the node sends it on."""

    message: Overload | Drift | FaultReport | ProfileProgress | ProfileDone | ProfileFailed


class Metrics(Frame, frozen=True):
    text: Annotated[str, msgspec.Meta(max_length=4 * 2**20)]


FromGateway = Hello | AskLease | ReleaseLease | Withdraw | Moved
FromNodeDaemon = Hello | Cluster | Apply | Measure | MeasureCancel | MetricsRequest
ToExecutor = FromGateway | RunBatch | FromNodeDaemon
#: the same messages as an executor reads them
ReceivedByExecutor = FromGateway | ReceivedBatch | FromNodeDaemon
ToGateway = LeaseState | ExecutorState | Results | Refusal
FromExecutor = ToGateway | ExecutorIdentity | StateReport | StatsReport | Relay | Metrics

_shapes = msgspec.msgpack.Decoder(tuple[RequestShape, ...])
Buffer = bytes | bytearray | memoryview


def read_shapes(raw: msgspec.Raw | bytes) -> tuple[RequestShape, ...]:
    """The shapes of a :class:`ReceivedBatch`.

    Raises:
        msgspec.DecodeError: these are none.
    """
    return _shapes.decode(raw)
