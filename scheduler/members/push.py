"""Sending configuration to members. Each gets a whole snapshot, so that a lost message heals with the next."""

from __future__ import annotations

import msgspec
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from registry.models import ApiKey, Application, Device, Gateway, Member, Node, ProfileJob, ProfileLatency, Variant
from scheduler.control.wire import application_spec
from scheduler.models import Plan
from workers.protocol import control, specs

#: the channel-layer group of all approved gateways
GATEWAYS = "gateways"


def node_group(pk: int) -> str:
    return f"node.{pk}"


def gateway_group(pk: int) -> str:
    return f"gateway.{pk}"


def latest_wire() -> specs.Plan:
    """The plan in force; version 0 and empty before the first."""
    plan = Plan.objects.only("wire").first()
    return msgspec.convert(plan.wire, specs.Plan) if plan is not None and plan.wire else specs.Plan(version=0)


def applications() -> tuple[specs.ApplicationSpec, ...]:
    """All of them, with the size classes that matter."""
    known: dict[int, set[int]] = {}
    latencies = ProfileLatency.objects.filter(size__gt=0).order_by()
    for pk, size in latencies.values_list("profile__variant__application", "size").distinct():
        known.setdefault(pk, set()).add(size)
    return tuple(
        application_spec(application, known.get(application.pk, ())) for application in Application.objects.all()
    )


def gateway_config() -> control.GatewayConfig:
    """Everything that a gateway must know now."""
    return control.GatewayConfig(
        applications=applications(),
        key_hashes=tuple(ApiKey.objects.order_by("id").values_list("key_hash", flat=True)),
        plan=latest_wire(),
    )


def node_config(node: Node) -> control.NodeConfig:
    """Everything that a node must know now: its devices' part of the plan, and what its cache should keep."""
    plan = latest_wire()
    kept = Variant.objects.filter(state=Variant.State.READY, excluded=False)
    standby = tuple(kept.order_by("id").values_list("pk", flat=True))
    own = set(Device.objects.filter(node=node).values_list("ref", flat=True))
    return control.NodeConfig(
        applications=applications(),
        plan=specs.Plan(
            version=plan.version,
            devices=tuple(msgspec.structs.replace(d, standby=standby) for d in plan.devices if d.device in own),
        ),
        keep=tuple(sorted(set(Variant.objects.values_list("digest", flat=True)))),
    )


def nudge(group: str) -> None:
    """Have the connections in a group send their configuration, as it is when they do: a snapshot taken here could be
    overtaken by a newer one that another process sends."""
    async_to_sync(get_channel_layer().group_send)(group, {"type": "member.refresh"})


def send(group: str, message: control.ToMember) -> None:
    """To every connection in a group, from synchronous code."""
    async_to_sync(get_channel_layer().group_send)(group, {"type": "member.send", "text": control.encode(message)})


def push_gateways() -> None:
    nudge(GATEWAYS)


def push_nodes() -> None:
    for node in Node.objects.filter(state=Member.State.APPROVED).exclude(channel=""):
        nudge(node_group(node.pk))


def push_all() -> None:
    """Nodes first: they can warm what is new while gateways still route by the old plan."""
    push_nodes()
    push_gateways()


def cancel_profile(pk: int) -> None:
    """Tell the device that works on a cancelled profile job to stop."""
    job = ProfileJob.objects.filter(pk=pk, state=ProfileJob.State.CANCELLED).select_related("device").first()
    if job is not None and job.device is not None:
        send(node_group(job.device.node_id), control.ProfileCancel(job=job.pk))


def recheck(kind: type[Node] | type[Gateway], pk: int) -> None:
    """A member's approval changed: its connection looks again."""
    group = node_group(pk) if kind is Node else gateway_group(pk)
    async_to_sync(get_channel_layer().group_send)(group, {"type": "member.recheck"})
