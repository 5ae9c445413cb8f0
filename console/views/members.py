"""Nodes, gateways and the join tokens that admit them."""

from __future__ import annotations

from django.conf import settings
from django.db.models import Prefetch
from django.shortcuts import render

from console.views.access import page
from registry.models import Device, Gateway, JoinToken, Node, Variant


@page
def nodes(request):
    """Nodes with their devices, gateways, join tokens."""
    names = {variant.pk: str(variant) for variant in Variant.objects.select_related("application")}
    found = Node.objects.prefetch_related(Prefetch("devices", queryset=Device.objects.order_by("ref")))
    return render(
        request,
        "console/nodes.html",
        {
            "nodes": [_node(node, names) for node in found],
            "gateways": Gateway.objects.all(),
            "tokens": JoinToken.objects.order_by("name"),
            "control_url": settings.NEREUS.public_url or settings.NEREUS.control_url,
        },
    )


def _node(node: Node, names: dict[int, str]) -> dict:
    return {
        "node": node,
        "devices": [
            {"device": device, "warm": [names.get(pk, f"variant {pk} (deleted)") for pk in device.warm]}
            for device in node.devices.all()
        ],
    }
