"""Updates of a node's devices in the registry by its daemon's reports. Synchronous."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from registry import clock
from registry.models import Device, Node
from registry.profiling import order_missing
from registry.text import storable
from workers.protocol.control import JoinNode
from workers.protocol.specs import DeviceInfo, DeviceState


@transaction.atomic
def sync(node: Node, infos: Iterable[DeviceInfo], join: JoinNode | None = None) -> bool:
    """Create and update the node's devices; whether some were forgotten, or are divided in another way.

    Those that are gone are down until an operator forgets them, except for retired ones, which are deleted. A device's
    id begins with its node's name: others could be another node's and are left out. ``join`` has the cores' division.
    """
    infos = [info for info in infos if info.id.startswith(f"{node.name}/")]
    for info in infos:
        facts = {
            "kind": info.kind,
            "type": info.type,
            "description": info.description,
            "cores": list(info.cores),
            "memory_bytes": info.memory_bytes,
            "endpoint": info.endpoint,
            "address": info.address,
        }
        # Its ``changed`` stays.
        if not Device.objects.filter(ref=info.id, node=node).update(**facts):
            Device.objects.create(ref=info.id, node=node, **facts)
    gone = Device.objects.filter(node=node).exclude(ref__in=[info.id for info in infos])
    forgotten = gone.filter(phase=Device.Phase.RETIRED).delete()[0]
    changed = join is not None and _divided(node, infos, join)
    lost = {"state": Device.State.DOWN, "warm": [], "plan_version": 0, "detail": Device.GONE, "phase": ""}
    gone.filter(state__in=Device.SERVING).update(changed=timezone.now(), **lost)
    gone.exclude(detail=Device.GONE).update(**lost)
    return bool(forgotten or changed)


def _divided(node: Node, infos: list[DeviceInfo], join: JoinNode) -> bool:
    """Keep how cores are divided, and the phases of devices; whether it is new."""
    division = {
        "cores": list(join.cores),
        "divided": storable(join.divided),
        "ordered": join.ordered,
        "problem": storable(join.division_problem),
    }
    changed = bool(Node.objects.filter(pk=node.pk).exclude(division=division).update(division=division))
    phase, retiring = Device.Phase, set(join.retiring)
    before = dict(Device.objects.filter(node=node).values_list("ref", "phase"))
    # One that is replaced before it ever served has nothing to hand over.
    now = {ref: phase.RETIRED if before[ref] in Device.LEFT_OUT else phase.RETIRING for ref in retiring & before.keys()}
    serving = {core for info in infos if now.get(info.id) == phase.RETIRING for core in info.cores}
    for info in infos:
        replaces = info.id not in now and info.kind == "cpu" and bool(serving & set(info.cores))
        wanted = phase.COMING if replaces else now.get(info.id, phase.KEPT)
        if wanted != before[info.id]:
            changed = bool(Device.objects.filter(ref=info.id).update(phase=wanted))
    return changed


class Report(NamedTuple):
    """Changes: events for browsers, devices that are up now, and why a plan has to follow others, in words."""

    events: list[dict[str, Any]]
    came: list[str]
    went: list[str]


def differs(node: Node, states: Iterable[DeviceState]) -> bool:
    return next(_differences(node.devices.all(), states), None) is not None


def _differences(
    devices: QuerySet[Device], states: Iterable[DeviceState]
) -> Iterator[tuple[Device, dict[str, Any], dict[str, Any]]]:
    """Devices whose rows a report changes, with what it reports and what of that is new."""
    known = {device.ref: device for device in devices}
    for state in states:
        device = known.get(state.device)
        if device is None:
            continue
        new = {
            "state": state.state,
            "warm": list(state.warm),
            "plan_version": state.plan_version,
            "detail": storable(state.detail),
        }
        changes = {name: value for name, value in new.items() if getattr(device, name) != value}
        if changes:
            yield device, new, changes


@transaction.atomic
def report(node: Node, states: Iterable[DeviceState]) -> Report:
    found, types = Report([], [], []), set()
    # Cores have their whole time to reach it, whatever they reported before.
    began = {"changed": timezone.now(), "serving_s": clock.steady(), "unreached_since": None}
    alike: list[tuple[dict[str, Any], list[int]]] = []
    # Locked, since values that are not new are not written again; profile jobs may refer to the rows meanwhile.
    for device, new, changes in _differences(node.devices.select_for_update(no_key=True), states):
        was, now = device.state, new["state"]
        turned = (was in Device.SERVING) != (now in Device.SERVING)
        changes |= began if turned else {}
        pks = next((pks for known, pks in alike if known == changes), None)
        if pks is None:
            alike.append((changes, pks := []))
        pks.append(device.pk)
        if Device.State.DRAINING not in (was, now) and Device.State.UP in (was, now) and was != now:
            if now == Device.State.UP:
                found.came.append(device.ref)
            else:
                found.went.append(f"device {device.ref} is {now}")
        if was != Device.State.UP and now == Device.State.UP:
            types.add(device.type)
        found.events.append({"device": device.ref, **new})
    # Mostly one statement: a plan that moves nothing gives all devices a new version, and nothing else.
    for changes, pks in alike:
        Device.objects.filter(pk__in=pks).update(**changes)
    for kind in sorted(types):
        order_missing(kind)
    return found


def silence(node: Node) -> list[dict[str, Any]]:
    """Return events for browsers when a node's connection ended.

    Its devices keep their last state for a while, because a control plane that restarts loses all connections at once
    and the data plane goes on without it.
    """
    rows = node.devices.values("state", "warm", "plan_version", device=F("ref"))
    return [{**row, "detail": "the node is not connected"} for row in rows]
