"""Which gateways reach which devices: the fact that plans go by.

An executor is reached by gateways of its own box over its unix socket, and by those of other boxes over TLS, where it
listens for them and both have a certificate of the cluster.
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
    node = device.node.name
    if device.address:
        return (
            f"not reachable from any gateway: node {node} or the gateways have no certificate of the cluster that is "
            "in force. Plans leave the device out; connect them to the control plane, which issues one."
        )
    return (
        "not reachable from any gateway: its executor listens for this box alone, and no gateway runs here. Plans "
        f"leave it out; set NEREUS_EXECUTORS on node {node}, start a gateway beside it, or revoke the node."
    )


def _reaches(gateway: Gateway, device: Device) -> bool:
    ours, theirs = gateway.machine, device.node.machine
    # Members of an earlier release do not report their box.
    if not ours or not theirs or ours == theirs:
        return not device.endpoint or device.endpoint.startswith(UNIX)
    return bool(device.address) and _certified(gateway) and _certified(device.node)


def _certified(member: Member) -> bool:
    return bool(member.key_hash) and not member.certificate_lapsed
