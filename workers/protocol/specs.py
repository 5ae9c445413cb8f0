"""Typed parts of messages: applications, variants, residents, plans. No behaviour.

Times are seconds, rates items/s (rows/s), sizes bytes, accuracies percent in the application's own metric unless a
name says ``normalized`` (percent of the application's best variant).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

#: Reports of members and executors are bounded, or one of them could report what no reader can count with: a bound on
#: floats also rejects NaN and infinities.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Part = Annotated[float, msgspec.Meta(ge=0, le=1)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Percent = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Name = Annotated[str, msgspec.Meta(max_length=500)]
Text = Annotated[str, msgspec.Meta(max_length=20_000)]
#: Values that the registry stores have the bounds of its columns; PostgreSQL stores no NUL.
Small = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Ref = Annotated[str, msgspec.Meta(min_length=1, max_length=120, pattern=r"^[^\x00]*\Z")]
Line = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00]*\Z")]
KeyHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
#: Rows or queries of a second: far above what a box can take in, and a sum of them is still exact.
InSecond = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
AccuracySum = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Accuracy = Annotated[float, msgspec.Meta(ge=0, le=100)]
#: devices of a node; variants, applications or sizes that one message names
MOST_DEVICES, MOST_NAMES = 1_000, 10_000
#: policies of an application on a device, rows that wait, and steps of a policy for this many
MOST_LOADS, MOST_ROWS, MOST_STEPS = 64, 64, 128


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]  # the batch dimension first (-1); other dimensions may be -1 (any), of inputs up to ``most``
    most: int = 0  # 0: any size


class Signature(msgspec.Struct, frozen=True):
    """Inputs and outputs of every variant of an application."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    #: False: models know no batch dimension. Between processes every tensor has one all the same, of 1: a query is one
    #: row. Executors run models without it, and clients do not see it.
    batch: bool = True


class ApplicationSpec(msgspec.Struct, frozen=True):
    name: str
    slo_s: float  # seconds from arrival to answer
    signature: Signature
    late: str = "shed"  # ``shed`` refuses what cannot be in time, ``serve`` answers late
    weight: float = 1.0  # worth of one of its rows, relative to other applications
    #: fill value by input whose open dimensions are filled up to the longest of a batch. Queries that differ in the
    #: shape of any other input do not run together.
    padding: dict[str, float] = {}
    #: of open dimensions, ascending: they make the size classes (:mod:`.shapes`), and no query is larger than the last
    sizes: tuple[int, ...] = ()
    non_finite: str = "error"  # JSON for NaN and infinities in an output: ``null``, or an ``error``


class ProfilePoint(msgspec.Struct, frozen=True):
    """Latency of one batch size, measured or (``samples`` 0) declared."""

    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    p50_s: Seconds
    p95_s: Seconds
    mean_s: Seconds
    samples: Small = 0
    #: the size class of its queries (:mod:`.shapes`); 0: that of the largest size, which holds for any query
    size: Small = 0


class VariantSpec(msgspec.Struct, frozen=True):
    """One ONNX model that serves ``application``."""

    id: int
    name: str
    application: str
    digest: str  # sha256 (hex), by which its file is found
    size_bytes: int
    accuracy: float | None = None
    accuracy_normalized: float | None = None
    alone: bool = False  # its queries run alone: never do two share a run
    rungs: dict[str, str] = {}  # by input, the made-up values that it runs with (:mod:`workers.executor.trial_values`)
    #: ``.npz`` of a few rows, where it runs with none of those; empty: there are none, or they are too large
    rows: bytes = b""


class Resident(msgspec.Struct, frozen=True):
    """A variant that the plan keeps loaded on a device."""

    variant: VariantSpec
    max_batch: int  # rows of one time slice
    rate: float  # items/s that the plan expects here
    time_share: float  # part of the device's time, from 0 to 1
    profile: tuple[ProfilePoint, ...]  # latencies on this device type, ascending by batch, for queries of any size
    memory_bytes: int = 0
    smaller: tuple[ProfilePoint, ...] = ()  # latencies of smaller size classes that take less, by class and batch


class DevicePlan(msgspec.Struct, frozen=True):
    """One device's part of a plan.

    Attributes:
        may_stay: ids of variants that may stay loaded though they are no residents; None: any. A variant that is about
            to be deleted must be unloaded.
        standby_residents: standby variants, to be loaded once the residents are, in this order, without a planned share
            of the queries. Late-bound queries may run on them, and batches that no resident could end in time.
        node, address: of the device, for gateways on other boxes.
    """

    device: str
    endpoint: str
    residents: tuple[Resident, ...]
    revisit_s: float = 0.0  # longest time between two slices of a resident; 0: the device is not shared
    may_stay: tuple[int, ...] | None = msgspec.field(default=None, name="standby")
    standby_residents: tuple[Resident, ...] = msgspec.field(default=(), name="relief")
    node: str = ""
    address: str = ""


class Route(msgspec.Struct, frozen=True):
    """The share of an application's queries for a device, 0 to 1; all sum to 1."""

    application: str
    device: str
    share: float


class Band(msgspec.Struct, frozen=True):
    """The demand (items/s) that a plan was made for; outside of it a new plan is due."""

    low: float  # least mean of 10 s
    high: float  # most in a second
    surge: float = 0.0  # most in 0.3 s, as a rate; 0: not looked at
    rise: float = 0.0  # highest mean of 3 s; 0: not looked at


PolicySteps = Annotated[tuple[tuple[Seconds, Small], ...], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]


class LoadPolicySpec(msgspec.Struct, frozen=True):
    load: Ratio
    #: by waiting rows, from 1: (least slack of the first query in seconds, place of the variant), ascending
    steps: Annotated[tuple[PolicySteps, ...], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]


class DevicePolicies(msgspec.Struct, frozen=True):
    """An application's load policies on some devices."""

    application: str
    devices: tuple[str, ...]
    variants: Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=MOST_NAMES)]  # ids, the fastest first
    policies: Annotated[tuple[LoadPolicySpec, ...], msgspec.Meta(max_length=MOST_LOADS)]  # by load, ascending


class PlanSpec(msgspec.Struct, frozen=True):
    """A whole plan, as gateways get it; a node gets the devices that it owns."""

    version: int
    devices: tuple[DevicePlan, ...] = ()
    routes: tuple[Route, ...] = ()
    bands: dict[str, Band] = {}
    stack: str = "nereus"  # which made the plan, and which the data plane follows
    policies: tuple[DevicePolicies, ...] = ()  # of stacks whose devices choose variants by them


class DeviceInfo(msgspec.Struct, frozen=True):
    id: Ref  # unique in the cluster
    kind: Literal["cpu", "cuda"]
    type: Ref  # devices of equal type have equal profiles
    description: Line
    cores: Annotated[tuple[Small, ...], msgspec.Meta(max_length=MOST_NAMES)]
    gpu_index: Small | None
    memory_bytes: Count
    endpoint: Line
    """``unix:/path``"""
    address: Line = ""
    """``host:port`` for cores on other boxes; empty: none reach it"""


class PeerSpec(msgspec.Struct, frozen=True):
    """Another member that this one may connect with; others are refused, or cut off."""

    role: Literal["node", "gateway"]
    name: Line
    key_hash: KeyHash  # sha256 (hex) of its SubjectPublicKeyInfo (DER)
    rank: Small = 0  # of a gateway, in the order of joining, from 1; 0 of a node
    #: its running box (:mod:`workers.machine`); empty: not reported
    machine: Annotated[str, msgspec.Meta(max_length=64)] = ""
    address: Line = ""  # ``host:port`` of a gateway's core for other boxes; empty: it has none


class ValidationSpec(msgspec.Struct, frozen=True):
    """A validation set, a ``.npz`` found by its digest, and its metric."""

    digest: str
    metric: str


class DeviceState(msgspec.Struct, frozen=True):
    device: Name
    state: Literal["starting", "up", "draining", "down"]  # ``starting``, ``up``, ``draining`` or ``down``
    plan_version: Count = 0
    warm: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    """variant ids that could run now"""
    detail: Text = ""


class VariantStats(msgspec.Struct, frozen=True):
    variant: Count
    application: Name
    rows: Count
    batches: Count
    busy_s: Seconds
    drift: Ratio = 0.0  # observed over profiled latency (1.0: as profiled; 0: none observed)


#: largest temperature and power of a device that can be
MOST_CELSIUS, MOST_WATTS = 200.0, 100_000.0


class DeviceStats(msgspec.Struct, frozen=True):
    device: Name
    busy: Part  # share of the second spent running batches
    profiling: Part  # share spent measuring
    queued_rows: Count
    memory_bytes: Count
    plan_version: Count
    variants: Annotated[tuple[VariantStats, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    #: its temperature; of CPU cores their package's. None: not known.
    celsius: Annotated[float, msgspec.Meta(ge=0, le=MOST_CELSIUS)] | None = None
    #: its power; of CPU cores their part of their package's. None: as above.
    watts: Annotated[float, msgspec.Meta(ge=0, le=MOST_WATTS)] | None = None


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of the plan that a gateway's core reaches and those it does not."""

    reached: Annotated[tuple[Ref, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()  # whether or not the core has them
    #: by device, seconds since it was lost or, where it was never reached, since the core was told of it
    unreached: Annotated[dict[Ref, Seconds], msgspec.Meta(max_length=MOST_NAMES)] = {}


class QuerySample(msgspec.Struct, frozen=True):
    """The end of one query.

    Attributes:
        outcome: ``in_time``, ``late``, ``dropped`` or ``failed``, as :class:`ApplicationStats` counts it.
        variant, device: who answered; empty: nobody.
        queue_ms, network_ms, batch_ms, model_ms: the times of its stages, all 0 where nobody answered.
    """

    outcome: Literal["in_time", "late", "dropped", "failed"]
    latency_ms: Ratio  # from its arrival to its answer
    budget_ms: Ratio  # the time that it had
    rows: InSecond = 1
    variant: Name = ""
    device: Name = ""
    batch_rows: InSecond = 0  # rows of the batch that it ran in
    queue_ms: Ratio = 0.0
    network_ms: Ratio = 0.0
    batch_ms: Ratio = 0.0
    model_ms: Ratio = 0.0
    tries: InSecond = 0  # how often it was sent to a device
    reason: Name = ""  # why it was refused; empty where it was answered


class ApplicationStats(msgspec.Struct):
    """One second of one application at one gateway.

    These are counts of queries, unless the name says rows. Queries count in the second of their arrival for
    ``arrived*``, in that of their answer elsewhere. Violations are ``late + dropped + failed``.

    Attributes:
        accuracy_sum: over the queries in time, in the application's own metric; ``normalized_sum``: in percent of its
            best variant.
        p50_ms, p95_ms: latencies of answers.
        arrived_by_size: ``arrived_rows`` by size class (:mod:`.shapes`); empty where there is only one.
        named: queries by the variant that they named, whether it is loaded or not.
        least_accuracy: the highest least accuracy that a query asked for, in the application's own metric; 0: none.
    """

    arrived: InSecond = 0
    arrived_rows: InSecond = 0
    in_time: InSecond = 0
    late: InSecond = 0
    dropped: InSecond = 0
    failed: InSecond = 0
    accuracy_sum: AccuracySum = 0.0
    normalized_sum: AccuracySum = 0.0
    p50_ms: Ratio = 0.0
    p95_ms: Ratio = 0.0
    by_variant: Annotated[dict[Name, InSecond], msgspec.Meta(max_length=MOST_NAMES)] = {}  # answers by variant's name
    arrived_by_size: Annotated[dict[Small, InSecond], msgspec.Meta(max_length=MOST_NAMES)] = {}
    named: Annotated[dict[Name, InSecond], msgspec.Meta(max_length=MOST_NAMES)] = {}
    least_accuracy: Ratio = 0.0
    slowest: QuerySample | None = None  # of the queries that were answered
    refused: QuerySample | None = None  # the first query that was refused
