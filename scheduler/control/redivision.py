"""Nodes whose cores become other devices: which plans use, and the changeover.

Phases of a device: ``coming`` (starts beside those that serve, and is measured; plans leave it out), ``retiring``
(serves until the coming ones do), ``retired`` (plans leave it out; its node ends it). All others have none.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.db.models import QuerySet

from registry import events, reach
from registry.models import Application, Device, Node, Profile, ProfileJob, Variant
from registry.profiling import OPEN, order
from scheduler.control.assemble import available_devices
from scheduler.control.requests import request_plan
from workers import log

logger = log.get("redivision")
Phase = Device.Phase


def advance() -> list[str]:
    """Let plans use nodes' coming devices where ready, not the retiring ones; the nodes' names."""
    dividing = Node.objects.filter(devices__phase=Phase.RETIRING).distinct()
    return [node.name for node in dividing if not waits_for(node) and _change_over(node)]


@transaction.atomic
def _change_over(node: Node) -> bool:
    mine = Device.objects.filter(node=node)
    # As members' reports do: these rows first.
    list(mine.select_for_update().order_by("ref"))
    # Another process may have been first, or the node may have been divided anew.
    if not mine.filter(phase=Phase.RETIRING).exists() or waits_for(node):
        return False
    _measure_again(mine.filter(phase=Phase.COMING))
    mine.filter(phase=Phase.COMING).update(phase=Phase.KEPT)
    mine.filter(phase=Phase.RETIRING).update(phase=Phase.RETIRED)
    events.changed("node", node.name)
    request_plan("change", f"the cores of {node.name} are other devices now")
    logger.info("node_changed_over", node=node.name)
    return True


def _measure_again(coming: QuerySet[Device]) -> None:
    """Order anew what was measured on shared cores; the jobs wait until the retired devices end."""
    measured = ProfileJob.objects.filter(device__in=coming, state=ProfileJob.State.DONE)
    kinds: dict[Variant, set[str]] = {}
    for job in measured.filter(variant__state__in=Variant.PLANNED).select_related("variant__application"):
        kinds.setdefault(job.variant, set()).add(job.device_type)
    for variant, types in kinds.items():
        order(variant, ProfileJob.Reason.DRIFT, types)


def waits_for(node: Node) -> list[str]:
    """Return reasons why plans still use the retiring devices; none: they need not."""
    devices = list(node.devices.select_related("node"))
    coming = [device for device in devices if device.phase == Phase.COMING]
    retiring = [device for device in devices if device.phase == Phase.RETIRING]
    gateways = reach.approved_gateways()
    said = []
    down = [device.ref for device in coming if device.state != Device.State.UP]
    if down:
        said.append(f"{', '.join(down)} {'is' if len(down) == 1 else 'are'} not up yet.")
    said += [why for device in coming if device.ref not in down and (why := reach.why_unreachable(device, gateways))]
    types = {device.type for device in coming}
    # A job for drift has a profile, and waits for devices that share their cores with no others.
    waiting = ProfileJob.objects.filter(device_type__in=types, state__in=OPEN)
    jobs = waiting.exclude(reason=ProfileJob.Reason.DRIFT).count()
    if jobs:
        said.append(f"{jobs} measurement{'' if jobs == 1 else 's'} of variants on the new devices to go.")
    if not said:
        others = {device.type for device in available_devices() if device.pk not in {one.pk for one in retiring}}
        lost = _runnable(device.type for device in retiring) - _runnable(types | others)
        if lost:
            said.append(
                f"No variant of {', '.join(sorted(lost))} can run on other devices than the present ones: add one that "
                "can, or divide the cores as before."
            )
    return said


def _runnable(types: Iterable[str]) -> set[str]:
    found = Profile.objects.filter(
        device_type__in=set(types),
        blocked="",
        variant__excluded=False,
        variant__state__in=Variant.PLANNED,
        variant__application__state=Application.State.ACTIVE,
    )
    return set(found.values_list("variant__application__name", flat=True).distinct())
