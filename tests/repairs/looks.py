"""Looking at the repairs of a small registered world, and changing it."""

from __future__ import annotations

from registry import clock, storage
from registry.models import Gateway, Node, Variant
from scheduler.control import requests
from scheduler.members import devices
from scheduler.models import Plan
from scheduler.repairs import listing
from workers.protocol.specs import DeviceState


def store(made: Variant) -> None:
    path = storage.path(made.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * made.size_bytes)


def found() -> dict[str, object]:
    return {repair.key: repair for repair in listing.current()}


def keep_alive() -> None:
    for kind in (Node, Gateway):
        kind.objects.exclude(channel="").update(seen_s=clock.steady())
    requests.served(0)


def plan(**more) -> Plan:
    values = {"stack": "nereus", "status": "optimal", "accuracy": 98.0, "demand": 100.0, "served": 100.0}
    allocation = {"placements": [], "served": {"digits": 100.0}, "left_out": {}, **more.pop("allocation", {})}
    return Plan.objects.create(trigger="period", problem={}, wire={}, allocation=allocation, **{**values, **more})


def report(box: Node, ref: str, state: str, detail: str = "") -> None:
    devices.report(box, [DeviceState(device=ref, state=state, detail=detail)])
