"""Division of a node's CPU cores into devices by an operator's order."""

from __future__ import annotations

from django.db import transaction

from registry import events
from registry.errors import Conflict, InputFault, InvalidInput, invalid
from registry.models import Device, Member, Node
from workers.environ import SettingsError, Wrong, cores
from workers.partition import partition, ranges

FIELD = "cpu_devices"
#: characters of an order; errors repeat it for each core
MOST_CHARACTERS = 200


def divide(node: Node, cpu_devices: str) -> Node:
    """Order how the node's cores become devices; doing so twice changes nothing.

    ``cpu_devices``: as ``NEREUS_CPU_DEVICES``; empty: as the box's settings say. Raises InvalidInput or Conflict.
    """
    _check_able(node)
    if cpu_devices:
        parts(node, cpu_devices)
    with transaction.atomic():
        if Node.objects.filter(pk=node.pk).exclude(cpu_devices=cpu_devices).update(cpu_devices=cpu_devices):
            events.changed("node", node.name)
    node.refresh_from_db()
    return node


def _check_able(node: Node) -> None:
    if node.state != Member.State.APPROVED:
        raise Conflict(f"node {node.name!r} is {node.state}; approve it first")
    if not node.division.get("cores"):
        raise Conflict(
            f"node {node.name!r} has not reported its cores: it has not joined with this release yet; upgrade or "
            "start it, or set NEREUS_CPU_DEVICES on the box"
        )


def parts(node: Node, cpu_devices: str) -> list[tuple[int, ...]] | None:
    """The cores of each device; None: the box decides. Raises InvalidInput."""
    if len(cpu_devices) > MOST_CHARACTERS:
        raise invalid(FIELD, f"has at most {MOST_CHARACTERS} characters, and this has {len(cpu_devices)}")
    try:
        cores(cpu_devices)
    except Wrong as error:
        raise invalid(FIELD, f"must be {error}") from None
    if cpu_devices == "auto":
        return None
    try:
        # Physical packages are known to the box alone: it may put other cores together, not another number.
        found = partition(cpu_devices, node.division.get("cores", ()), {}, FIELD)
    except SettingsError as error:
        raise InvalidInput([InputFault(FIELD, one.removeprefix(f"{FIELD}=")) for one in error.problems]) from None
    if not found and not node.devices.exclude(kind="cpu").exists():
        raise invalid(FIELD, "would leave the node without a device: it has no GPU")
    return found


def consequences(node: Node, cpu_devices: str) -> list[str]:
    """Effects of the order, a sentence each. Raises as :func:`divide`."""
    _check_able(node)
    spec = cpu_devices or ("" if node.division.get("ordered") else node.division.get("divided", ""))
    now = [device for device in node.devices.all() if device.kind == "cpu" and device.phase == Device.Phase.KEPT]
    wanted = parts(node, spec) if spec else None
    if wanted is None:
        by = "its settings" if not spec else "its own topology: equal devices of 1, 2, 4 or 8 cores"
        said = [f"{node.name} divides its cores by {by}. Devices whose cores stay together stay as they are."]
    else:
        kept = {tuple(device.cores) for device in now} & set(wanted)
        new = [cores for cores in wanted if cores not in kept]
        if not new and len(kept) == len(now):
            return [f"Nothing changes: the cores of {node.name} are divided so already."]
        said = [f"{_devices(now)} become{'s' if len(now) == 1 else ''} {_count(len(wanted))}: {_listed(wanted)}."]
        said += [f"{_count(len(kept))} of them stay{'s' if len(kept) == 1 else ''} as now."] if kept else []
    return [
        *said,
        "New devices start beside the present ones, on the same cores. Until they have taken over, the box holds the "
        "models of both: it needs memory for both.",
        "Sizes of devices that the cluster does not know yet are measured with every variant first, which takes "
        "minutes. The cores go on serving meanwhile, so that both are slower: once the present devices have ended, "
        "these sizes are measured again, between queries. Until then plans expect less of them than they can do.",
        "Then plans move to the new devices, once they run every application that the present ones run, and the "
        "present ones end. No query is refused for it. It stays so after restarts, whatever NEREUS_CPU_DEVICES says.",
    ]


def _devices(devices: list[Device]) -> str:
    return (
        f"{_count(len(devices))} ({_listed([tuple(device.cores) for device in devices])})" if devices else "No device"
    )


def _count(number: int) -> str:
    return f"{number} device" if number == 1 else f"{number} devices"


def _listed(found: list[tuple[int, ...]]) -> str:
    shown = "; ".join(ranges(cores) for cores in found[:8])
    return (f"cores {shown}" if found else "no cores") + (f" and {len(found) - 8} more" if len(found) > 8 else "")
