"""Which gateways reach which devices: the fact that plans go by.

An executor that listens on a unix socket is reached by gateways of its own box. Another transport between boxes needs
another line in :func:`_reaches`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from registry.models import Device, Gateway, Member

UNIX = "unix:"


def approved_gateways() -> list[Gateway]:
    """Gateways that count, connected or not: one whose link is down goes on serving."""
    return list(Gateway.objects.filter(state=Member.State.APPROVED))


def reaching(device: Device, gateways: Iterable[Gateway]) -> list[str]:
    """Names of those of the gateways that reach a device."""
    return [gateway.name for gateway in gateways if _reaches(gateway, device)]


def reachable(devices: Iterable[Device], gateways: Sequence[Gateway]) -> list[Device]:
    """The devices that at least one gateway reaches; all of them before the first gateway has joined."""
    return [device for device in devices if not gateways or reaching(device, gateways)]


def why_unreachable(device: Device, gateways: Sequence[Gateway]) -> str:
    """Why no gateway reaches the device, and what to do; empty where one does, or no gateway has joined yet."""
    if not gateways or reaching(device, gateways):
        return ""
    return (
        "not reachable from any gateway: its executor listens on a unix socket, and no gateway runs on its box. "
        f"Plans leave it out; start a gateway beside the node daemon of {device.node.name}, or revoke that node."
    )


def _reaches(gateway: Gateway, device: Device) -> bool:
    if device.endpoint and not device.endpoint.startswith(UNIX):
        return False  # no gateway has a transport for it
    ours, theirs = gateway.machine, device.node.machine
    # Members of an earlier release do not report their box.
    return not ours or not theirs or ours == theirs
