"""The checks: each yields repairs, and reads what it alone needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.repairs.checks import box, members, planning, secrets, variants
from scheduler.repairs.facts import Facts
from scheduler.repairs.repair import Repair

CHECKS: tuple[Callable[[Facts], Iterable[Repair]], ...] = (
    members.lost_devices,
    members.not_connected,
    members.behind,
    members.certificates,
    members.waiting,
    members.claimed,
    members.unreachable,
    members.cordoned,
    planning.failing,
    planning.refused,
    planning.demand,
    planning.applications,
    variants.profiles,
    variants.unprofiled,
    variants.blocked,
    variants.mixed,
    variants.files,
    box.disk,
    box.clock_set,
    box.certificate,
    box.redis,
    box.isolation,
    box.backup,
    secrets.api_keys,
    secrets.api_tokens,
    secrets.join_tokens,
    # The others may have met one.
    box.troubles,
)
