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
    """One input or output.

    Attributes:
        shape: the batch dimension first (-1); other dimensions may be -1 (any), of inputs up to ``most``.
        most: 0: any size.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    most: int = 0


class Signature(msgspec.Struct, frozen=True):
    """Inputs and outputs of every variant of an application.

    Attributes:
        batch: False: models know no batch dimension. Between processes every tensor has one all the same, of 1: a query
            is one row. Executors run models without it, and clients do not see it.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: bool = True


class ApplicationSpec(msgspec.Struct, frozen=True):
    """An application as the data plane sees it.

    Attributes:
        slo_s: seconds from arrival to answer.
        late: ``shed`` refuses what cannot be in time, ``serve`` answers late.
        non_finite: JSON for NaN and infinities in an output: ``null``, or an ``error``.
        weight: worth of one of its rows, relative to other applications.
        padding: fill value by input whose open dimensions are filled up to the longest of a batch. Queries that differ
            in the shape of any other input do not run together.
        sizes: of open dimensions, ascending: they make the size classes (:mod:`.shapes`), and no query is larger than
            the last.
    """

    name: str
    slo_s: float
    signature: Signature
    late: str = "shed"
    weight: float = 1.0
    padding: dict[str, float] = {}
    sizes: tuple[int, ...] = ()
    non_finite: str = "error"


class ProfilePoint(msgspec.Struct, frozen=True):
    """Latency of one batch size, measured or (``samples`` 0) declared.

    Attributes:
        size: the size class of its queries (:mod:`.shapes`); 0: that of the largest size, which holds for any query.
    """

    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    p50_s: Seconds
    p95_s: Seconds
    mean_s: Seconds
    samples: Small = 0
    size: Small = 0


class VariantSpec(msgspec.Struct, frozen=True):
    """One ONNX model that serves ``application``.

    Attributes:
        digest: sha256 (hex), by which its file is found.
        alone: its queries run alone: never do two share a run.
        rungs: by input, the made-up values that it runs with (:mod:`workers.executor.trial_values`).
        rows: ``.npz`` of a few rows, where it runs with none of those; empty: there are none, or they are too large.
    """

    id: int
    name: str
    application: str
    digest: str
    size_bytes: int
    accuracy: float | None = None
    accuracy_normalized: float | None = None
    alone: bool = False
    rungs: dict[str, str] = {}
    rows: bytes = b""


class Resident(msgspec.Struct, frozen=True):
    """A variant that the plan keeps loaded on a device.

    Attributes:
        max_batch: rows of one time slice.
        rate: items/s that the plan expects here.
        time_share: part of the device's time, from 0 to 1.
        profile: latencies on this device type, ascending by batch, for queries of any size.
        smaller: latencies of smaller size classes that take less, by class and batch.
    """

    variant: VariantSpec
    max_batch: int
    rate: float
    time_share: float
    profile: tuple[ProfilePoint, ...]
    memory_bytes: int = 0
    smaller: tuple[ProfilePoint, ...] = ()


class DevicePlan(msgspec.Struct, frozen=True):
    """One device's part of a plan.

    Attributes:
        revisit_s: longest time between two slices of a resident; 0: the device is not shared.
        standby: ids of variants that may stay loaded though they are no residents; None: any. A variant that is about
            to be deleted must be unloaded.
        relief: variants to load once the residents are loaded, in this order, without a planned share of the queries.
            Late-bound queries may run on them, and batches that no resident could end in time.
        node, address: of the device, for gateways on other boxes.
    """

    device: str
    endpoint: str
    residents: tuple[Resident, ...]
    revisit_s: float = 0.0
    standby: tuple[int, ...] | None = None
    relief: tuple[Resident, ...] = ()
    node: str = ""
    address: str = ""


class Route(msgspec.Struct, frozen=True):
    """The share of ``application``'s queries that ``device`` gets.

    It is from 0 to 1; an application's shares sum to 1.
    """

    application: str
    device: str
    share: float


class Band(msgspec.Struct, frozen=True):
    """The demand (items/s) that a plan was made for; outside of it a new plan is due.

    Attributes:
        low: least mean of 10 s.
        high: most in a second.
        surge: most in 0.3 s, as a rate; 0: not looked at.
        rise: highest mean of 3 s; 0: not looked at.
    """

    low: float
    high: float
    surge: float = 0.0
    rise: float = 0.0


PolicySteps = Annotated[tuple[tuple[Seconds, Small], ...], msgspec.Meta(min_length=1, max_length=MOST_STEPS)]


class LoadPolicySpec(msgspec.Struct, frozen=True):
    """The variants to run at a load of at most ``load`` rows/s, with their rows.

    Attributes:
        steps: by waiting rows, from 1: (least slack of the first query in seconds, place of the variant), ascending.
    """

    load: Ratio
    steps: Annotated[tuple[PolicySteps, ...], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]


class DevicePolicies(msgspec.Struct, frozen=True):
    """An application's load policies on some devices.

    Attributes:
        variants: ids, the fastest first.
        policies: by load, ascending.
    """

    application: str
    devices: tuple[str, ...]
    variants: Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=MOST_NAMES)]
    policies: Annotated[tuple[LoadPolicySpec, ...], msgspec.Meta(max_length=MOST_LOADS)]


class PlanSpec(msgspec.Struct, frozen=True):
    """A whole plan, as gateways get it; a node gets the devices that it owns.

    Attributes:
        stack: which made the plan, and which the data plane follows.
        policies: of stacks whose devices choose variants by them.
    """

    version: int
    devices: tuple[DevicePlan, ...] = ()
    routes: tuple[Route, ...] = ()
    bands: dict[str, Band] = {}
    stack: str = "nereus"
    policies: tuple[DevicePolicies, ...] = ()


class DeviceInfo(msgspec.Struct, frozen=True):
    """A device as its node found it.

    Attributes:
        id: unique in the cluster.
        type: devices of equal type have equal profiles.
    """

    id: Ref
    kind: Literal["cpu", "cuda"]
    type: Ref
    description: Line
    cores: Annotated[tuple[Small, ...], msgspec.Meta(max_length=MOST_NAMES)]
    gpu_index: Small | None
    memory_bytes: Count
    endpoint: Line
    """``unix:/path``"""
    address: Line = ""
    """``host:port`` for cores on other boxes; empty: none reach it"""


class PeerSpec(msgspec.Struct, frozen=True):
    """Another member that this one may connect with.

    A member that is not listed is refused, or cut off.

    Attributes:
        key_hash: sha256 (hex) of its SubjectPublicKeyInfo (DER).
        rank: of a gateway, in the order of joining, from 1; 0 of a node.
        machine: its running box (:mod:`workers.machine`); empty: not reported.
        address: ``host:port`` of a gateway's core for other boxes; empty: it has none.
    """

    role: Literal["node", "gateway"]
    name: Line
    key_hash: KeyHash
    rank: Small = 0
    machine: Annotated[str, msgspec.Meta(max_length=64)] = ""
    address: Line = ""


class ValidationSpec(msgspec.Struct, frozen=True):
    """A validation set and the metric that turns outputs into an accuracy.

    The set is a ``.npz`` file, found by its digest.
    """

    digest: str
    metric: str


class DeviceState(msgspec.Struct, frozen=True):
    """A device's present state.

    Attributes:
        state: ``starting``, ``up``, ``draining`` or ``down``.
    """

    device: Name
    state: Literal["starting", "up", "draining", "down"]
    plan_version: Count = 0
    warm: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    """variant ids that could run now"""
    detail: Text = ""


class VariantStats(msgspec.Struct, frozen=True):
    """One second of one variant on one device.

    Attributes:
        drift: observed over profiled latency (1.0: as profiled; 0: none observed).
    """

    variant: Count
    application: Name
    rows: Count
    batches: Count
    busy_s: Seconds
    drift: Ratio = 0.0


#: largest temperature and power of a device that can be
MOST_CELSIUS, MOST_WATTS = 200.0, 100_000.0


class DeviceStats(msgspec.Struct, frozen=True):
    """One second of one device.

    Attributes:
        busy: share of the second spent running batches.
        profiling: share spent measuring.
        celsius: its temperature; of CPU cores their package's. None: not known, or from older code.
        watts: its power; of CPU cores their part of their package's. None: as above.
    """

    device: Name
    busy: Part
    profiling: Part
    queued_rows: Count
    memory_bytes: Count
    plan_version: Count
    variants: Annotated[tuple[VariantStats, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    celsius: Annotated[float, msgspec.Meta(ge=0, le=MOST_CELSIUS)] | None = None
    watts: Annotated[float, msgspec.Meta(ge=0, le=MOST_WATTS)] | None = None


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of the plan that a gateway's core reaches and those it does not.

    Attributes:
        reached: whether or not the core has them.
        unreached: by device, seconds since it was lost or, where it was never reached, since the core was told of it.
    """

    reached: Annotated[tuple[Ref, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    unreached: Annotated[dict[Ref, Seconds], msgspec.Meta(max_length=MOST_NAMES)] = {}


class QuerySample(msgspec.Struct, frozen=True):
    """The end of one query.

    Attributes:
        outcome: ``in_time``, ``late``, ``dropped`` or ``failed``, as :class:`ApplicationStats` counts it.
        latency_ms: from its arrival to its answer.
        budget_ms: the time that it had.
        variant, device: who answered; empty: nobody.
        batch_rows: rows of the batch that it ran in.
        queue_ms, network_ms, batch_ms, model_ms: the times of its stages, all 0 where nobody answered.
        tries: how often it was sent to a device.
        reason: why it was refused; empty where it was answered.
    """

    outcome: Literal["in_time", "late", "dropped", "failed"]
    latency_ms: Ratio
    budget_ms: Ratio
    rows: InSecond = 1
    variant: Name = ""
    device: Name = ""
    batch_rows: InSecond = 0
    queue_ms: Ratio = 0.0
    network_ms: Ratio = 0.0
    batch_ms: Ratio = 0.0
    model_ms: Ratio = 0.0
    tries: InSecond = 0
    reason: Name = ""


class ApplicationStats(msgspec.Struct):
    """One second of one application at one gateway.

    These are counts of queries, unless the name says rows. Queries count in the second of their arrival for
    ``arrived*``, in that of their answer elsewhere. Violations are ``late + dropped + failed``.

    Attributes:
        accuracy_sum: over the queries in time, in the application's own metric; ``normalized_sum``: in percent of its
            best variant.
        p50_ms, p95_ms: latencies of answers.
        by_variant: answers by variant's name.
        arrived_by_size: ``arrived_rows`` by size class (:mod:`.shapes`); empty where there is only one.
        named: queries by the variant that they named, whether it is loaded or not.
        least_accuracy: the highest least accuracy that a query asked for, in the application's own metric; 0: none.
        slowest: of the queries that were answered.
        refused: the first query that was refused.
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
    by_variant: Annotated[dict[Name, InSecond], msgspec.Meta(max_length=MOST_NAMES)] = {}
    arrived_by_size: Annotated[dict[Small, InSecond], msgspec.Meta(max_length=MOST_NAMES)] = {}
    named: Annotated[dict[Name, InSecond], msgspec.Meta(max_length=MOST_NAMES)] = {}
    least_accuracy: Ratio = 0.0
    slowest: QuerySample | None = None
    refused: QuerySample | None = None
