"""Applications that one node's devices alone can serve."""

from __future__ import annotations

from registry import reach
from registry.models import Application, Device, Node, Profile, Variant


def only_on(node: Node) -> list[str]:
    """Names of active applications that could be served now, and could not without this node's devices."""
    usable = Device.objects.filter(
        state__in=Device.SERVING, node__state=Node.State.APPROVED, node__cordoned_at=None
    ).select_related("node")
    here: set[str] = set()
    elsewhere: set[str] = set()
    for device in reach.reachable(usable, reach.approved_gateways()):
        if device.node_id == node.pk:
            here.add(device.type)
        elif device.node.connected:
            elsewhere.add(device.type)
    types: dict[str, set[str]] = {}
    profiles = Profile.objects.filter(
        blocked="",
        variant__excluded=False,
        variant__state__in=Variant.PLANNED,
        variant__application__state=Application.State.ACTIVE,
    )
    for application, kind in profiles.values_list("variant__application__name", "device_type").distinct():
        types.setdefault(application, set()).add(kind)
    return sorted(name for name, found in types.items() if found & here and not found & elsewhere)
