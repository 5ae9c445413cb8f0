"""Present use of devices, from which the advice on sleeping devices is made."""

from __future__ import annotations

from registry.models import Device, Node
from scheduler.models import Plan
from workers.dispatch.stack import PUBLISHED
from workers.dispatch.stacks import STACKS

from .sleep import DeviceUse, TypeAdvice, advice
from .states import Instance, instances


def current_advice(found: list[Instance] | None = None) -> list[TypeAdvice]:
    """Return advice on the devices that plans may use.

    Args:
        found: all instances, where these were read already.
    """
    loads: dict[str, float] = {}
    states: dict[str, list] = {}
    for instance in instances() if found is None else found:
        loads[instance.device] = instance.load
        states.setdefault(instance.device, []).append(instance.state)
    plan = Plan.objects.only("stack", "allocation", "inputs").first()
    planned, applications = ({}, {}) if plan is None else _planned(plan)
    return advice(
        DeviceUse(
            device.ref,
            device.type,
            max(planned.get(device.ref, 0.0), loads.get(device.ref, 0.0)),
            applications.get(device.ref, ""),
            tuple(states.get(device.ref, ())),
        )
        for device in Device.objects.filter(
            node__state=Node.State.APPROVED,
            node__cordoned_at=None,
            state=Device.State.UP,
            unreached_since=None,
            phase="",
        )
    )


def _planned(plan: Plan) -> tuple[dict[str, float], dict[str, str]]:
    """Return time shares by device, and dedicated devices' applications.

    Devices have an application where the stack dedicates them.
    """
    owner = {variant["id"]: variant["application"] for variant in plan.inputs.get("variants") or ()}
    stack = STACKS.get(plan.stack)
    dedicated = stack is not None and stack.binding == PUBLISHED and not plan.allocation.get("revisit_s")
    shares: dict[str, float] = {}
    applications: dict[str, str] = {}
    for placement in plan.allocation["placements"]:
        ref = placement["device"]
        shares[ref] = shares.get(ref, 0.0) + placement["time_share"]
        if dedicated and placement["time_share"] > 0:
            applications[ref] = owner.get(placement["variant"], "")
    return shares, applications
