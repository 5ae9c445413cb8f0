"""A small registered world for tests of the control loop: real rows, no processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from registry import clock
from registry.models import Application, Device, Node, Profile, ProfileLatency, Variant
from scheduler import presence, telemetry
from scheduler.control import leases
from scheduler.models import WorkLease
from tests.running import SIGNATURE
from workers.protocol.control import GatewayStats
from workers.protocol.specs import ApplicationStats

KIND = "cpu-test-1c"


def seen(ago: float = 0.0) -> dict:
    """Fields of a member whose last message came ``ago`` seconds ago."""
    return {"last_seen": timezone.now() - timedelta(seconds=ago), "seen_s": clock.steady() - ago}


def listening(redis) -> None:
    """Have the control plane have received members' messages for a while."""
    redis.set(presence.SEEN, clock.stamp())
    redis.delete(presence.RETURNING)


def node(name: str = "box", devices: int = 2, state: str = Device.State.UP) -> Node:
    made = Node.objects.create(name=name, state=Node.State.APPROVED, channel="c!1", **seen())
    for index in range(devices):
        Device.objects.create(
            node=made,
            ref=f"{name}/cpu{index}",
            kind="cpu",
            type=KIND,
            cores=[index],
            memory_bytes=2**30,
            endpoint=f"unix:/run/{name}-cpu{index}.sock",
            state=state,
        )
    return made


def application(name: str = "digits", slo_ms: float = 300, **fields) -> Application:
    return Application.objects.create(name=name, slo_ms=slo_ms, signature=SIGNATURE, **fields)


def variant(owner: Application, name: str, accuracy: float, ms_per_row: float, state=Variant.State.READY) -> Variant:
    """A profiled variant whose batch b takes ``b * ms_per_row`` ms."""
    made = Variant.objects.create(
        application=owner, name=name, digest=f"{name:x<64}", size_bytes=1000, accuracy=accuracy, state=state
    )
    profile = Profile.objects.create(variant=made, device_type=KIND, load_s=0.1, memory_bytes=2**20)
    for batch in (1, 2, 4, 8):
        took = batch * ms_per_row
        ProfileLatency.objects.create(
            profile=profile, batch=batch, p50_ms=took * 0.9, p95_ms=took, mean_ms=took * 0.92, samples=20
        )
    return made


def second(
    counts: Mapping[str, ApplicationStats], ago: float = 0.0, gateway: str = "g", at: float | None = None, **more: Any
) -> None:
    """Store a gateway's second that ended so long ago (before ``at``); ``counts`` by application."""
    stats = GatewayStats(applications=counts, ready=True, **more)
    now = clock.wall() if at is None else at
    telemetry.record(telemetry.GATEWAY_STREAM, telemetry.gateway_second(gateway, stats, now - ago))


def arrive(names: str | Sequence[str], rate: int, seconds: int = 20) -> None:
    """Store a gateway's last seconds, in each of which so many single items of each application arrived."""
    names, now = [names] if isinstance(names, str) else names, clock.wall()
    for ago in range(seconds, 0, -1):
        second({name: ApplicationStats(arrived=rate, arrived_rows=rate) for name in names}, ago, at=now)


def requested() -> list[str]:
    """The details of requests for a plan that none has served; from now on one has."""
    while row := WorkLease.objects.filter(name=leases.PLAN).first():
        # Another request may come between the two.
        unchanged = WorkLease.objects.filter(pk=row.pk, wanted=row.wanted)
        if unchanged.update(started=row.wanted, served=row.wanted, causes=[]):
            return [detail for _, _, detail in row.causes]
    return []
