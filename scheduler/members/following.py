"""Whether a member has joined and follows the plan in force, with the reasons where not."""

from __future__ import annotations

from registry.models import Device, Gateway, Member, Node
from scheduler.control.assemble import available_devices
from scheduler.models import Plan


def lacking(kind: type[Node] | type[Gateway], name: str) -> list[str]:
    """Why the member does not serve as it should. A cordoned node only has to be there, devices up."""
    word = kind.word
    member = kind.objects.filter(name=name).first()
    if member is None:
        return [f"{word} {name} has not joined"]
    if member.state != Member.State.APPROVED:
        return [f"{word} {name} is {member.state}"]
    if not member.connected:
        return [f"{word} {name} is not connected"]
    if isinstance(member, Gateway):
        return [f"{word} {name} is behind with its configuration"] if member.behind else []
    return _devices(member)


def _devices(node: Node) -> list[str]:
    devices = list(node.devices.exclude(detail=Device.GONE))
    down = [
        f"device {device.ref} is {device.state}" + (f" ({device.detail})" if device.detail else "")
        for device in devices
        if device.state not in Device.SERVING
    ]
    if down or node.cordoned_at is not None:
        return down
    if cut_off := [device.ref for device in devices if device.unreached_since is not None]:
        return [f"device {ref} is reached by no gateway" for ref in cut_off]
    plan = Plan.objects.only("inputs", "wire").first()
    if plan is None or not plan.wire or not plan.wire["routes"]:
        return []  # nothing is to be served
    residents = {one["device"]: one["residents"] for one in plan.wire["devices"]}
    planned = {device["id"] for device in plan.inputs.get("devices") or ()}
    wanted = {device.ref for device in available_devices()}
    return [why for device in devices if device.ref in wanted for why in _behind(device, plan.pk, planned, residents)]


def _behind(device: Device, version: int, planned: set[str], residents: dict[str, list[dict]]) -> list[str]:
    if device.ref not in planned:
        return [f"plan {version} was made without device {device.ref}"]
    if device.plan_version < version:
        return [f"device {device.ref} follows plan {device.plan_version}, not {version}"]
    cold = [one["variant"] for one in residents.get(device.ref, ()) if one["variant"]["id"] not in device.warm]
    return [f"device {device.ref} has not loaded {one['application']}/{one['name']}" for one in cold]
