"""Facts of the database that members' configurations are made from. Synchronous."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from django.db.models import TextField
from django.db.models.functions import Cast

from registry import authority
from registry.models import (
    ApiKey,
    Application,
    Device,
    Gateway,
    Member,
    Node,
    Profile,
    ProfileJob,
    ProfileLatency,
    Variant,
)
from scheduler.control.wire import application_spec
from scheduler.members.standing import Row
from scheduler.models import Plan
from workers.protocol import control, specs

#: columns of members; those of a :class:`Row` come first
_MEMBER = (*Row._fields, "pk", "name", "key_hash", "machine", "certificate_lapsed")


def latest_wire() -> specs.PlanSpec:
    """The plan in force; version 0 and empty before the first."""
    text = Plan.objects.annotate(text=Cast("wire", TextField())).values_list("text", flat=True).first()
    return _plan(text or "{}")


@functools.lru_cache(maxsize=1)
def _plan(text: str) -> specs.PlanSpec:
    """The plan of this JSON, read every few seconds: decoding takes far longer than comparing."""
    return specs.PlanSpec(version=0) if text == "{}" else msgspec.json.decode(text, type=specs.PlanSpec)


def applications() -> tuple[specs.ApplicationSpec, ...]:
    known: dict[int, set[int]] = {}
    latencies = ProfileLatency.objects.filter(size__gt=0).order_by()
    for pk, size in latencies.values_list("profile__variant__application", "size").distinct():
        known.setdefault(pk, set()).add(size)
    return tuple(
        application_spec(application, known.get(application.pk, ())) for application in Application.objects.all()
    )


@dataclass(frozen=True)
class CommonConfiguration:
    """The facts that all members' configurations are made from.

    Attributes:
        standby: ids of variants that may stay loaded.
        blocked: those that may not, by device type.
        keep: digests of files to keep.
        owners: (node id, device type) by device.
        gateways, nodes: those that other members may connect with.
        cordoned: ids of nodes whose devices keep nothing loaded.
        divided: how nodes' cores become devices, by node id, where that was ordered.
        retired: devices that keep nothing loaded, since others have their cores.
    """

    applications: tuple[specs.ApplicationSpec, ...]
    key_hashes: tuple[str, ...]
    key_limits: dict[str, control.KeyLimits]
    plan: specs.PlanSpec
    standby: tuple[int, ...]
    blocked: dict[str, frozenset[int]]
    keep: tuple[str, ...]
    owners: dict[str, tuple[int, str]]
    cordoned: frozenset[int]
    divided: dict[int, str]
    retired: frozenset[str]
    gateways: tuple[specs.PeerSpec, ...] = ()
    nodes: tuple[specs.PeerSpec, ...] = ()


@dataclass(frozen=True)
class Registered:
    """All that connections compare with what their members report.

    Attributes:
        rows: by kind and id, of all members.
        jobs: the number of attempts by running profile job, by node id.
        authority: hash of the key of the members' certificates' authority.
        variants: names by application, of all that are registered.
        loading: whether any of them waits until gateways answer with it.
    """

    shared: CommonConfiguration
    rows: dict[tuple[type[Node] | type[Gateway], int], Row]
    jobs: dict[int, dict[int, int]]
    authority: str = ""
    variants: dict[str, frozenset[str]] = field(default_factory=dict)
    loading: bool = False


def _limits(key: ApiKey) -> control.KeyLimits:
    return control.KeyLimits(
        applications=None if key.applications is None else tuple(key.applications),
        rate=key.rate,
        burst=key.burst,
        share=key.share,
        expires=None if key.expires is None else key.expires.timestamp(),
    )


def read() -> Registered:
    """Read each table once: an idle control plane does little else."""
    nodes = Node.objects.order_by("id").values_list(*_MEMBER, "cordoned_at", "cpu_devices", named=True)
    # An id is given once, in the order of joining, and a member keeps it: so it ranks gateways, whichever of them come
    # and go.
    gateways = Gateway.objects.order_by("id").values_list(*_MEMBER, "core_address", named=True)
    devices = Device.objects.values_list("ref", "node_id", "type", "phase", named=True)
    variants = Variant.objects.order_by("id").values_list(
        "pk", "state", "excluded", "digest", "application__name", "name", named=True
    )
    blocked: dict[str, set[int]] = {}
    for kind, pk in Profile.objects.exclude(blocked="").values_list("device_type", "variant"):
        blocked.setdefault(kind, set()).add(pk)
    jobs: dict[int, dict[int, int]] = {}
    running = ProfileJob.objects.filter(state=ProfileJob.State.RUNNING, device__isnull=False)
    for node, job, attempts in running.values_list("device__node_id", "pk", "attempts"):
        jobs.setdefault(node, {})[job] = attempts
    named: dict[str, set[str]] = {}
    for variant in variants:
        named.setdefault(variant.application__name, set()).add(variant.name)
    keys = [key for key in ApiKey.objects.order_by("id") if not key.expired]
    shared = CommonConfiguration(
        applications=applications(),
        key_hashes=tuple(key.key_hash for key in keys),
        key_limits={key.key_hash: limits for key in keys if (limits := _limits(key)) != control.KeyLimits()},
        plan=latest_wire(),
        standby=tuple(one.pk for one in variants if one.state in Variant.PLANNED and not one.excluded),
        blocked={kind: frozenset(pks) for kind, pks in blocked.items()},
        keep=tuple(sorted({variant.digest for variant in variants})),
        owners={device.ref: (device.node_id, device.type) for device in devices},
        gateways=tuple(
            specs.PeerSpec("gateway", one.name, one.key_hash, one.pk, one.machine, one.core_address)
            for one in gateways
            if _has_peers(one)
        ),
        nodes=tuple(
            specs.PeerSpec("node", one.name, one.key_hash, machine=one.machine) for one in nodes if _has_peers(one)
        ),
        cordoned=frozenset(node.pk for node in nodes if node.cordoned_at is not None),
        divided={node.pk: node.cpu_devices for node in nodes if node.cpu_devices},
        retired=frozenset(device.ref for device in devices if device.phase == Device.Phase.RETIRED),
    )
    return Registered(
        shared,
        rows={
            (kind, one.pk): Row(*one[: len(Row._fields)])
            for kind, some in ((Node, nodes), (Gateway, gateways))
            for one in some
        },
        jobs=jobs,
        authority=authority.key_hash(),
        variants={application: frozenset(names) for application, names in named.items()},
        loading=any(variant.state == Variant.State.LOADING for variant in variants),
    )


def _has_peers(member) -> bool:
    return member.state == Member.State.APPROVED and not member.certificate_lapsed and member.key_hash != ""


def gateway_config(shared: CommonConfiguration) -> control.GatewayConfig:
    return control.GatewayConfig(
        applications=shared.applications,
        key_hashes=shared.key_hashes,
        key_limits=shared.key_limits,
        plan=shared.plan,
        peers=(*shared.gateways, *shared.nodes),
    )


def planned_by_node(shared: CommonConfiguration) -> dict[int, list[specs.DevicePlan]]:
    found: dict[int, list[specs.DevicePlan]] = {}
    for device in shared.plan.devices:
        if device.device in shared.owners:
            found.setdefault(shared.owners[device.device][0], []).append(device)
    return found


def node_config(
    pk: int, shared: CommonConfiguration, planned: Iterable[specs.DevicePlan] | None = None
) -> control.NodeConfig:
    """Everything that a node must know; ``planned``: its part, where that is known."""
    own = []
    for device in planned_by_node(shared).get(pk, ()) if planned is None else planned:
        blocked = shared.blocked.get(shared.owners[device.device][1], frozenset())
        kept = () if pk in shared.cordoned or device.device in shared.retired else shared.standby
        may_stay = tuple(variant for variant in kept if variant not in blocked)
        own.append(msgspec.structs.replace(device, may_stay=may_stay))
    return control.NodeConfig(
        applications=shared.applications,
        plan=specs.PlanSpec(version=shared.plan.version, devices=tuple(own)),
        keep=shared.keep,
        peers=shared.gateways,
        cpu_devices=shared.divided.get(pk, ""),
        retired=tuple(sorted(ref for ref in shared.retired if shared.owners.get(ref, (None, ""))[0] == pk)),
    )
