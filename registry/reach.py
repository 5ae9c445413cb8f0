"""Reach of gateways: which devices plans may use.

An executor is reached by gateways of its own box over its unix socket, and by those of other boxes over TLS, where it
listens for them and both have a certificate of the cluster. That is what members announce. Whether the network lets
a core through is what gateways report each second; devices that none of them reaches have ``unreached_since``
(:mod:`scheduler.members.reaching` decides).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from registry import clock
from registry.models import Device, Gateway, Member

UNIX = "unix:"


class Reported(NamedTuple):
    """A gateway's report on a device.

    Attributes:
        announced: the gateway may reach it, by what both announce.
        reached: None: it has not reported on this device (yet).
        unreached_s: seconds since it reached the device last, or was notified of it.
        lost: it reached the device before, since it joined.
    """

    announced: bool
    reached: bool | None = None
    unreached_s: float = 0.0
    lost: bool = False


class Unreached(NamedTuple):
    gateway: str
    since: datetime | None


def approved_gateways() -> list[Gateway]:
    """Gateways that count, connected or not: one whose link is down goes on serving."""
    return list(Gateway.objects.filter(state=Member.State.APPROVED))


def reported(gateway: Gateway, device: Device) -> Reported:
    found, may = gateway.reach or {}, announced(gateway, device)
    if device.ref in found.get("unreached", ()):
        return Reported(may, False, clock.age(found["unreached"][device.ref]), device.ref in found.get("lost", ()))
    return Reported(may, True if device.ref in found.get("reached", ()) else None)


def reaching(device: Device, gateways: Iterable[Gateway]) -> list[str]:
    found = ((gateway.name, reported(gateway, device)) for gateway in gateways)
    return [name for name, says in found if (says.announced if says.reached is None else says.reached)]


def unreached_by(device: Device, gateways: Iterable[Gateway]) -> list[Unreached]:
    found = ((gateway.name, reported(gateway, device)) for gateway in gateways)
    return [Unreached(name, _wall(says.unreached_s)) for name, says in found if says.reached is False]


def _wall(age_s: float) -> datetime | None:
    known = age_s < clock.wall()
    return datetime.fromtimestamp(clock.wall() - age_s, UTC).replace(microsecond=0) if known else None


def reachable(devices: Iterable[Device], gateways: Sequence[Gateway]) -> list[Device]:
    """Devices that a gateway reaches as far as known, or all before one joined."""
    return [device for device in devices if not why_unreachable(device, gateways)]


def why_unreachable(device: Device, gateways: Sequence[Gateway]) -> str:
    """Why no gateway reaches the device, and the remedy; empty: one does."""
    if not gateways:
        return ""
    node = device.node.name
    if device.unreached_since is not None:
        tried = ", ".join(one.gateway for one in unreached_by(device, gateways)) or "none is connected now"
        at = device.address if device.address else "its socket on that box"
        return (
            f"not reached by any gateway ({tried}) since {device.unreached_since:%Y-%m-%d %H:%M:%S} UTC, although its "
            f"executor is up. Plans leave it out until one reaches it; check the network and firewalls between the "
            f"gateways and node {node} ({at})."
        )
    if any(announced(gateway, device) for gateway in gateways):
        return ""
    if device.address:
        return (
            f"not reachable from any gateway: node {node} or the gateways have no certificate of the cluster that is "
            "in force. Plans leave the device out; connect them to the control plane, which issues one."
        )
    return (
        "not reachable from any gateway: its executor listens for this box alone, and no gateway runs here. Plans "
        f"leave it out; set NEREUS_EXECUTORS on node {node}, start a gateway on its box, or revoke the node."
    )


def announced(gateway: Gateway, device: Device) -> bool:
    ours, theirs = gateway.machine, device.node.machine
    # Members of an earlier release do not report their box.
    if not ours or not theirs or ours == theirs:
        return not device.endpoint or device.endpoint.startswith(UNIX)
    return bool(device.address) and _certified(gateway) and _certified(device.node)


def _certified(member: Member) -> bool:
    return bool(member.key_hash) and not member.certificate_lapsed
