"""The present as several checks need it, each part read once at its first use.

What one check alone needs, it reads itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from django.db.models import Max
from django.utils import timezone
from redis.exceptions import RedisError

from registry import clock
from registry.models import Application, Device, Gateway, Member, Node, ProfileJob, Variant
from scheduler import troubles
from scheduler.allocation.problem import Problem
from scheduler.control.assemble import assemble
from scheduler.history import reading, recent
from scheduler.history.figures import Grid
from scheduler.history.folding import APPLICATION, TIERS
from scheduler.models import Plan
from scheduler.repairs.capacity import shares

#: seconds of queries that are looked at by the second; windows of rows tell bursts from what lasts
MINUTE_S, SHORT_S, LONG_S = 60, 300, 900
#: seconds of the shortest time that counts, as long as the console's figures of the present
MOMENT_S = 5
#: columns of the history's sums, in the order of :class:`RecentQueries`
_COUNTED = [APPLICATION.index(name) for name in ("arrived", "in_time", "late", "dropped", "failed")]

T = TypeVar("T")


@dataclass(frozen=True)
class RecentQueries:
    """Queries at all gateways; ``worst``: highest share of violations in a moment."""

    arrived: int = 0
    in_time: int = 0
    late: int = 0
    refused: int = 0
    failed: int = 0
    worst: float = 0.0

    @property
    def violations(self) -> int:
        return self.late + self.refused + self.failed

    @property
    def share(self) -> float:
        return self.violations / max(1, self.arrived, self.in_time + self.violations)


class Facts:
    """The present as one look finds it; DatabaseError where the database is away."""

    def __init__(self):
        self.now = timezone.now()
        #: whether Redis answered so far; without it nothing is taken for over
        self.redis = not troubles.pausing(troubles.REDIS)

    def from_redis(self, read: Callable[[], T], otherwise: T) -> T:
        """What Redis tells, or ``otherwise`` where it does not answer."""
        if self.redis:
            try:
                return read()
            except (RedisError, OSError) as error:
                troubles.occurred(error)
                self.redis = False
        return otherwise

    @cached_property
    def members(self) -> list[Node | Gateway]:
        return [*Node.objects.select_related("claim_with"), *Gateway.objects.select_related("claim_with")]

    @cached_property
    def gateways(self) -> list[Gateway]:
        return [one for one in self.members if isinstance(one, Gateway) and one.state == Member.State.APPROVED]

    @cached_property
    def devices(self) -> list[Device]:
        """Devices of approved nodes."""
        return list(Device.objects.filter(node__state=Member.State.APPROVED).select_related("node"))

    @cached_property
    def usable(self) -> list[Device]:
        return [device for device in self.devices if device.node.connected and device.state in Device.SERVING]

    @cached_property
    def applications(self) -> list[Application]:
        return list(Application.objects.filter(state=Application.State.ACTIVE))

    @cached_property
    def variants(self) -> list[Variant]:
        active = Variant.objects.filter(application__state=Application.State.ACTIVE)
        return list(
            active.exclude(state=Variant.State.DRAINING).select_related("application").prefetch_related("profiles")
        )

    @cached_property
    def jobs(self) -> dict[tuple[int, str], ProfileJob]:
        """The newest profile job that was not cancelled, by variant's id and device type."""
        counted = ProfileJob.objects.exclude(state=ProfileJob.State.CANCELLED).order_by()
        newest = counted.values("variant", "device_type").annotate(newest=Max("pk")).values("newest")
        known = {variant.pk for variant in self.variants}
        jobs = ProfileJob.objects.filter(pk__in=newest)
        return {(job.variant_id, job.device_type): job for job in jobs if job.variant_id in known}

    @cached_property
    def problem(self) -> Problem:
        """With all devices of approved nodes, whether they are up or not, and no demand."""
        return assemble({}, self.devices)

    @cached_property
    def capacity(self) -> dict[str, float]:
        return shares(self.problem)

    @cached_property
    def plan(self) -> Plan | None:
        """The newest, without its problem, inputs and wire form."""
        return Plan.objects.defer("problem", "inputs", "wire").first()

    @cached_property
    def recent(self) -> Mapping[str, RecentQueries]:
        """By application, over :data:`MINUTE_S`."""
        return self.from_redis(_recent, {})

    @cached_property
    def short(self) -> Mapping[str, RecentQueries]:
        return self._recorded(SHORT_S)

    @cached_property
    def long(self) -> Mapping[str, RecentQueries]:
        return self._recorded(LONG_S)

    @cached_property
    def _rows(self):
        return reading.recent_rows(LONG_S)

    def _recorded(self, seconds: int) -> dict[str, RecentQueries]:
        points = seconds // TIERS[0].resolution
        return {name: _counted(sums.values[-points:]) for name, sums in self._rows.items()}


def _recent() -> dict[str, RecentQueries]:
    moments = MINUTE_S // MOMENT_S + 1
    on = Grid((int(clock.wall()) // MOMENT_S + 1 - moments) * MOMENT_S, MOMENT_S, moments)
    return {
        name: replace(_counted(sums.values), worst=max(_counted(row[None]).share for row in sums.values))
        for name, sums in recent.by_application(on, recent.read(MINUTE_S)).items()
    }


def _counted(rows: np.ndarray) -> RecentQueries:
    return RecentQueries(*rows[:, _COUNTED].sum(axis=0).astype(int).tolist())
