"""Division of a node's CPU cores into devices by an operator's order."""

from __future__ import annotations

from django.db import transaction

from registry import events
from registry.errors import Conflict, InputFault, InvalidInput, invalid
from registry.models import Member, Node
from workers.environ import SettingsError, Wrong, cores
from workers.partition import partition

FIELD = "cpu_devices"
#: characters of an order; errors repeat it for each core
MOST_CHARACTERS = 200


def divide(node: Node, cpu_devices: str) -> Node:
    """Order how the node's cores become devices; doing so twice changes nothing.

    ``cpu_devices``: as ``NEREUS_CPU_DEVICES``; empty: as the box's settings say. Raises InvalidInput or Conflict.
    """
    if node.state != Member.State.APPROVED:
        raise Conflict(f"node {node.name!r} is {node.state}; approve it first")
    if not node.division.get("cores"):
        raise Conflict(
            f"node {node.name!r} has not reported its cores: it has not joined with this release yet; upgrade or "
            "start it, or set NEREUS_CPU_DEVICES on the box"
        )
    if cpu_devices:
        _check(node, cpu_devices)
    with transaction.atomic():
        if Node.objects.filter(pk=node.pk).exclude(cpu_devices=cpu_devices).update(cpu_devices=cpu_devices):
            events.changed("node", node.name)
    node.refresh_from_db()
    return node


def _check(node: Node, cpu_devices: str) -> None:
    try:
        cores(cpu_devices)
    except Wrong as error:
        raise invalid(FIELD, f"must be {error}") from None
    if cpu_devices == "auto":
        return
    try:
        # Physical packages are known to the box alone: it may put other cores together, not another number.
        found = partition(cpu_devices, node.division.get("cores", ()), {}, FIELD)
    except SettingsError as error:
        raise InvalidInput([InputFault(FIELD, one.removeprefix(f"{FIELD}=")) for one in error.problems]) from None
    if not found and not node.devices.exclude(kind="cpu").exists():
        raise invalid(FIELD, "would leave the node without a device: it has no GPU")
