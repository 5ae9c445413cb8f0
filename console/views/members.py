"""Nodes, gateways and the join tokens that admit them."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import Prefetch
from django.shortcuts import render
from django.utils import timezone

from console.views.access import page
from registry import reach, usable
from registry.models import Device, Gateway, JoinToken, Node, Variant

#: how long a new join token is proposed to live
TOKEN_TIME = timedelta(days=7)


@page
def nodes(request):
    """Nodes with their devices, gateways, join tokens."""
    gateways = list(Gateway.objects.select_related("claim_with"))
    serving = [gateway for gateway in gateways if gateway.state == Gateway.State.APPROVED]
    names = {variant.pk: str(variant) for variant in Variant.objects.select_related("application")}
    devices = Device.objects.select_related("node").order_by("ref")
    found = Node.objects.select_related("claim_with").prefetch_related(Prefetch("devices", queryset=devices))
    return render(
        request,
        "console/nodes.html",
        {
            "nodes": [_node(node, names, serving) for node in found],
            "gateways": gateways,
            "tokens": JoinToken.objects.order_by("name"),
            "token_kinds": JoinToken.Kind.choices,
            "token_expires": timezone.now() + TOKEN_TIME,
            "control_url": settings.NEREUS.public_url or settings.NEREUS.control_url,
        },
    )


def _node(node: Node, names: dict[int, str], gateways: list[Gateway]) -> dict:
    return {
        "node": node,
        "only_here": usable.only_on(node) if node.cordoned_at is None else [],
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
