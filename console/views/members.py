"""Nodes, gateways and the join tokens that admit them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db.models import Prefetch
from django.shortcuts import render
from django.utils import timezone

from console.views.access import page
from registry import reach, usable
from registry.models import Device, Fault, Gateway, JoinToken, Node, Variant
from scheduler.control import redivision
from workers import __version__

#: how long a new join token is proposed to live
TOKEN_TIME = timedelta(days=7)
#: faults that a lost node's last words have
FAULTS = 3


@page
def nodes(request):
    gateways = list(Gateway.objects.select_related("claim_with"))
    serving = [gateway for gateway in gateways if gateway.state == Gateway.State.APPROVED]
    names = {variant.pk: str(variant) for variant in Variant.objects.select_related("application")}
    devices = Device.objects.select_related("node").order_by("ref")
    found = Node.objects.select_related("claim_with").prefetch_related(Prefetch("devices", queryset=devices))
    alone = usable.alone([node for node in found if node.cordoned_at is None])
    crashes = _faults(node for node in found if not node.connected)
    return render(
        request,
        "console/nodes.html",
        {
            "nodes": [
                _node(node, names, serving)
                | {"faults": crashes.get(node.name, []), "only_here": alone.get(node.pk, [])}
                for node in found
            ],
            "dividable": [
                node.name for node in found if node.state == Node.State.APPROVED and node.division.get("cores")
            ],
            "gateways": gateways,
            "tokens": JoinToken.objects.order_by("name"),
            "release": __version__,
            "token_kinds": JoinToken.Kind.choices,
            "token_expires": timezone.now() + TOKEN_TIME,
            "control_url": settings.NEREUS.public_url or settings.NEREUS.control_url,
        },
    )


def _dividing(node: Node) -> dict | None:
    """Return the state of a change of the node's cores to other devices.

    None: no change is under way. ``waits``: reasons why plans still use the devices that retire; empty: the coming ones
    are ready, or no device retires yet.
    """
    phases = {device.phase for device in node.devices.all()} - {Device.Phase.KEPT}
    if not phases:
        return None
    return {"waits": redivision.waits_for(node) if Device.Phase.RETIRING in phases else []}


def _faults(nodes: Iterable[Node]) -> dict[str, list[Fault]]:
    owners = {device.ref: node.name for node in nodes for device in node.devices.all()}
    found: dict[str, list[Fault]] = {}
    # Of all devices no more are kept than one query reads.
    for fault in Fault.objects.filter(device__in=owners) if owners else ():
        mine = found.setdefault(owners[fault.device], [])
        if len(mine) < FAULTS:
            mine.append(fault)
    return found


def _node(node: Node, names: dict[int, str], gateways: list[Gateway]) -> dict:
    return {
        "node": node,
        "dividing": _dividing(node),
        "devices": [
            {
                "device": device,
                "warm": [names.get(pk, f"variant {pk} (deleted)") for pk in device.warm],
                "unreachable": reach.why_unreachable(device, gateways),
                "reached_by": reach.reaching(device, gateways),
                "unreached_by": reach.unreached_by(device, gateways),
            }
            for device in node.devices.all()
        ],
    }
