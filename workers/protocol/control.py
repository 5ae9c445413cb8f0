"""Messages between the control plane and its members (node daemons, gateways).

They go over a websocket as JSON text, and have one typed definition for both ends. Each message carries ``v``; a member
whose version differs is turned away with :data:`CLOSE_VERSION` and a reason. Which side sends a message is its base
class: :class:`FromMember` or :class:`ToMember`. Decode with the ``decode_`` function of the direction and the member.

A member authenticates with ``Authorization: Bearer TOKEN``: the join token the first time, afterwards the credential
that :class:`Joined` gave it. Close codes show a member whether to try again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from .specs import (
    MOST_DEVICES,
    MOST_NAMES,
    Accuracy,
    ApplicationSpec,
    ApplicationStats,
    Count,
    DeviceInfo,
    DeviceState,
    DeviceStats,
    Line,
    Name,
    Part,
    PeerSpec,
    PlanSpec,
    ProfilePoint,
    Ratio,
    Reach,
    Ref,
    Seconds,
    Small,
    Text,
    ValidationSpec,
    VariantSpec,
)

VERSION = 1

ShortLine = Annotated[str, msgspec.Meta(max_length=40, pattern=r"^[^\x00]*\Z")]
Points = Annotated[tuple[ProfilePoint, ...], msgspec.Meta(max_length=10_000)]
Hash = Annotated[str, msgspec.Meta(max_length=64)]
#: characters of a certificate signing request (PEM): one of ours has less than 1,000, beside a name of 200 letters that
#: need 12 each
MOST_REQUEST = 8_000
CertificateRequest = Annotated[str, msgspec.Meta(max_length=MOST_REQUEST)]
#: certificates as PEM: a member's with those that lead to an authority, or the authorities
Certificates = Annotated[str, msgspec.Meta(max_length=20_000)]

CLOSE_UNAUTHORIZED = 4401
"""The token is unknown or revoked: try again slowly, an operator must act."""
CLOSE_MALFORMED = 4400
"""A message could not be understood; its reason names the fault."""
CLOSE_VERSION = 4426
"""Another protocol version: upgrade one side."""
CLOSE_TRY_AGAIN = 1013
"""The control plane cannot serve the member now (IANA's registry of close codes): join again."""
CLOSE_REPLACED = 4409
"""A newer connection of the same member took over."""


class FromMember(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    v: int = VERSION


class ToMember(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    v: int = VERSION


# --- from members ---------------------------------------------------------------------------------------------------


class Join(FromMember, frozen=True, kw_only=True):
    """First message of a member."""

    name: Line
    #: the running box (:mod:`workers.machine`); empty: not reported. Members of one box reach each other over unix
    #: sockets.
    machine: Hash = ""
    #: for its certificate (:class:`IssuedCertificate`); empty: it gets none
    certificate_request: CertificateRequest = ""
    release: ShortLine = ""  # of its code


class JoinNode(Join, tag="join_node", frozen=True, kw_only=True):
    devices: Annotated[tuple[DeviceInfo, ...], msgspec.Meta(max_length=MOST_DEVICES)]
    #: those that it may divide into devices
    cores: Annotated[tuple[Small, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    divided: Line = ""  # how they are divided, as ``NEREUS_CPU_DEVICES`` says it
    ordered: bool = False  # whether that was ordered by the control plane; else the box's settings say so
    division_problem: Line = ""  # why the newest order cannot be followed; empty: it is
    #: devices that others replace on the same cores; they serve until those do
    retiring: Annotated[tuple[Ref, ...], msgspec.Meta(max_length=MOST_DEVICES)] = ()


class JoinGateway(Join, tag="join_gateway", frozen=True, kw_only=True):
    address: Line  # where clients reach it
    core: Line = ""  # ``host:port`` of its core for members on other boxes; empty: it has none


class DeviceStates(FromMember, tag="device_states", frozen=True, kw_only=True):
    """Of every device of the node: after joining, at each change, twice a minute."""

    devices: Annotated[tuple[DeviceState, ...], msgspec.Meta(max_length=MOST_DEVICES)]


class MemberStats(FromMember, frozen=True, kw_only=True):
    """Sent each second, even with nothing to report: the control plane answers where the member is behind."""

    at: Seconds = 0.0  # seconds ago that the second ended (boxes' clocks differ)
    #: of the configuration that the member holds, 0 while it holds none. None, of both: not reported.
    plan_version: Count | None = None
    #: :attr:`Configuration.hash` of the configuration that it holds, as received; empty while it holds none
    config_hash: Hash | None = None


class NodeStats(MemberStats, tag="node_stats", frozen=True, kw_only=True):
    devices: Annotated[tuple[DeviceStats, ...], msgspec.Meta(max_length=MOST_DEVICES)]
    #: ids of the profile jobs under way at the node; None: not reported
    jobs: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_NAMES)] | None = None


class GatewayStats(MemberStats, tag="gateway_stats", frozen=True, kw_only=True):
    applications: Annotated[dict[Name, ApplicationStats], msgspec.Meta(max_length=MOST_NAMES)]
    ready: bool
    #: those whose queries it answers, as a device has a variant of each warm
    serving: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    #: devices that its core reaches now; None: not reported
    reach: Reach | None = None


class Burst(FromMember, tag="burst", frozen=True, kw_only=True):
    """The gateway's demand (items/s) left the plan's band."""

    application: Name
    rate: Ratio
    plan_version: Count


#: least part of the SLO that a late or refused query must have been given to count as overload: a shorter budget was
#: its client's choice
OVERLOAD_BUDGET_SHARE = 0.8


class Overload(FromMember, tag="overload", frozen=True, kw_only=True):
    """Rows refused in the last second: by ``device``; if empty, by a gateway, as no device could answer in time."""

    device: Name
    application: Name
    arrived: Count
    refused: Count


class Drift(FromMember, tag="drift", frozen=True, kw_only=True):
    """Observed latency over profiled latency left the tolerated range for some time."""

    device: Name
    variant: Count
    ratio: Ratio


class FaultReport(FromMember, tag="fault", frozen=True, kw_only=True):
    """A run of ``variant`` on ``device`` went wrong."""

    device: Name
    variant: Count  # id
    #: the executor ``crashed``, a run exceeded its limit and was ``stopped``, or queries were ``mixed``, as the answer
    #: to one depends on the others of its run
    cause: Literal["crashed", "stopped", "mixed"]
    detail: Text  # how, in words


class ProfileProgress(FromMember, tag="profile_progress", frozen=True, kw_only=True):
    job: Count
    phase: Name  # ``waiting``, ``fetching``, ``loading``, ``measuring`` or ``validating``
    done: Part  # 0 to 1
    points: Points = ()  # those measured so far


class ProfileDone(FromMember, tag="profile_done", frozen=True, kw_only=True):
    job: Count
    load_s: Seconds
    memory_bytes: Count
    points: Points
    accuracy: Accuracy | None = None  # percent, where a validation set was ordered
    validated_rows: Count = 0


class ProfileFailed(FromMember, tag="profile_failed", frozen=True, kw_only=True):
    job: Count
    message: Text
    retry: bool = False  # another try may help, as after the loss of a device
    attempt: Count = 0  # of the order; 0: not reported


FromNode = (
    JoinNode | DeviceStates | NodeStats | Overload | Drift | FaultReport | ProfileProgress | ProfileDone | ProfileFailed
)
FromGateway = JoinGateway | GatewayStats | Burst | Overload


# --- to members -----------------------------------------------------------------------------------------------------


class IssuedCertificate(ToMember, tag="issued_certificate", frozen=True, kw_only=True):
    """A member's certificate for the key of its join's request, and the authorities that it trusts in its peers.

    Sent with :class:`Joined`, and again when the present certificate ends soon or comes from an earlier authority.
    """

    certificate: Certificates = ""
    authorities: Certificates = ""
    refused: Text = ""  # why none was issued, in words; empty where one was, or none was asked for


class Joined(ToMember, tag="joined", frozen=True, kw_only=True):
    member: int
    credential: str | None = None  # given once, when the join token was used; the member keeps it on disk
    issued: IssuedCertificate = IssuedCertificate()  # the answer to the join's certificate request


class Pending(ToMember, tag="pending", frozen=True, kw_only=True):
    """Not yet approved by the operator; the connection stays, Joined follows."""

    reason: str


class Configuration(ToMember, frozen=True, kw_only=True):
    """The whole configuration of a member, replacing the earlier one."""

    applications: tuple[ApplicationSpec, ...]
    plan: PlanSpec
    #: digest of all else in it, set by :func:`with_hash`. The member reports it back as it came and computes nothing:
    #: code of another version would encode the same configuration otherwise.
    hash: str = ""
    #: the members that this one may connect with over TLS; a revoked one is no longer among them
    peers: Annotated[tuple[PeerSpec, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()


class NodeConfig(Configuration, tag="node_config", frozen=True, kw_only=True):
    """A node's configuration. ``plan.devices`` are the node's own."""

    keep: tuple[str, ...] = ()  # digests that the model cache should keep
    #: how its cores become devices, as ``NEREUS_CPU_DEVICES`` says it; empty: as its settings say
    cpu_devices: Line = ""
    #: retiring devices that plans leave out now; the node ends them once they hold nothing
    retired: tuple[str, ...] = ()


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of an API key; None: no limit."""

    applications: tuple[str, ...] | None = None  # names of those that it reaches
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None  # queries/s
    burst: Annotated[int, msgspec.Meta(ge=1)] | None = None  # burst size in queries; None: those of a second
    #: part of an application's capacity, at most, while the application refuses queries
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    expires: float | None = None  # unix seconds


class GatewayConfig(Configuration, tag="gateway_config", frozen=True, kw_only=True):
    key_hashes: tuple[str, ...]  # sha256 (hex) of API keys
    key_limits: dict[str, KeyLimits] = {}  # of those that have limits


class ProfileOrder(ToMember, tag="profile_order", frozen=True, kw_only=True):
    """Measure batches 1, 2, 4 ... ``max_batch``, until p95 passes ``slo_s``, for each size class."""

    job: int
    device: str
    variant: VariantSpec
    application: ApplicationSpec
    first: bool  # the variant never ran on this device type: cores are told of its first run
    max_batch: int = 64
    validation: ValidationSpec | None = None
    attempt: int = 0  # counts the orders of this job from 1; 0: not reported


class ProfileCancel(ToMember, tag="profile_cancel", frozen=True, kw_only=True):
    """Stop a profile job; nothing is answered."""

    job: int


ToNode = Joined | Pending | NodeConfig | ProfileOrder | ProfileCancel | IssuedCertificate
ToGateway = Joined | Pending | GatewayConfig | IssuedCertificate

_encoder = msgspec.json.Encoder()
_in_order = msgspec.json.Encoder(order="deterministic")


class VersionMismatch(Exception):
    """The other side speaks another protocol version."""


def with_hash(config: NodeConfig | GatewayConfig) -> NodeConfig | GatewayConfig:
    """``config`` with the digest of its content, the same in any process."""
    digest = hashlib.sha256(_in_order.encode(msgspec.structs.replace(config, hash=""))).hexdigest()[:16]
    return msgspec.structs.replace(config, hash=digest)


def encode(message: FromMember | ToMember) -> str:
    return _encoder.encode(message).decode()


class _Envelope(msgspec.Struct):
    v: int


def _decoding(types: Any) -> Callable[[str | bytes], Any]:
    decode = msgspec.json.Decoder(types).decode

    def checked(text: str | bytes) -> Any:
        version = msgspec.json.decode(text, type=_Envelope).v
        if version != VERSION:
            raise VersionMismatch(f"protocol version {version} is not {VERSION}; upgrade the older side")
        return decode(text)

    return checked


#: each raises VersionMismatch or msgspec.DecodeError
decode_from_node, decode_from_gateway = _decoding(FromNode), _decoding(FromGateway)
decode_to_node, decode_to_gateway = _decoding(ToNode), _decoding(ToGateway)
