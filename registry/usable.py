"""Applications that only one node's devices can serve."""

from __future__ import annotations

from collections.abc import Iterable

from registry import reach
from registry.models import Application, Device, Node, Profile, Variant


def alone(nodes: Iterable[Node]) -> dict[int, list[str]]:
    """Active applications that only one of these nodes' devices can serve now, by its id."""
    usable = Device.objects.filter(
        state__in=Device.SERVING, node__state=Node.State.APPROVED, node__cordoned_at=None
    ).select_related("node")
    there: dict[int, set[str]] = {}
    connected: dict[str, set[int]] = {}
    for device in reach.reachable(usable, reach.approved_gateways()):
        there.setdefault(device.node_id, set()).add(device.type)
        if device.node.connected:
            connected.setdefault(device.type, set()).add(device.node_id)
    types: dict[str, set[str]] = {}
    profiles = Profile.objects.filter(
        blocked="",
        variant__excluded=False,
        variant__state__in=Variant.PLANNED,
        variant__application__state=Application.State.ACTIVE,
    )
    for application, kind in profiles.values_list("variant__application__name", "device_type").distinct():
        types.setdefault(application, set()).add(kind)
    found = {}
    for node in nodes:
        here = there.get(node.pk, set())
        elsewhere = {kind for kind, where in connected.items() if where - {node.pk}}
        names = sorted(name for name, kinds in types.items() if kinds & here and not kinds & elsewhere)
        if names:
            found[node.pk] = names
    return found
