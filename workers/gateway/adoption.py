"""Adopting a plan make-before-break: an application moves once it is warm. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from workers.protocol.specs import PlanSpec

Routes = dict[str, tuple[tuple[str, float], ...]]


@dataclass(frozen=True)
class _Planned:
    """An application's part of a plan: its shares, and ids of its variants, by device."""

    shares: tuple[tuple[str, float], ...]
    variants: Mapping[str, frozenset[int]]


_NOTHING = _Planned((), {})


def planned_applications(plan: PlanSpec) -> dict[str, _Planned]:
    residents: dict[tuple[str, str], set[int]] = {}
    for device in plan.devices:
        for resident in device.residents:
            residents.setdefault((resident.variant.application, device.device), set()).add(resident.variant.id)
    shares: dict[str, dict[str, float]] = {}
    for route in plan.routes:
        if route.share > 0 and math.isfinite(route.share):
            by_device = shares.setdefault(route.application, {})
            by_device[route.device] = by_device.get(route.device, 0.0) + route.share
    return {
        name: _Planned(
            tuple(by_device.items()), {device: frozenset(residents.get((name, device), ())) for device in by_device}
        )
        for name, by_device in shares.items()
    }


def _residents(plan: PlanSpec) -> dict[str, frozenset[int]]:
    return {device.device: frozenset(resident.variant.id for resident in device.residents) for device in plan.devices}


class Adoption:
    """The present routes, by the plans received and the variants that are warm.

    An application moves to the newest plan when every device that the plan routes it to has its planned variants warm,
    or, ``limit_s`` after the plan was first due, with those devices that can serve it. It moves sooner when its old
    routes no longer work. An application that the new plan leaves out keeps its old routes until all others have
    moved. Routes lead only to devices on which some variant of the application is warm.

    A device may unload what is no resident of the newest plan that it has received, which may be older than the target.
    While the old routes work, only those of its warm variants count that are residents there in all plans since.

    A connected device may not be in use for a moment. Before the time limit, no application moves from devices in use
    to others that are all not in use.

    Attributes:
        not_in_use: connected devices that took no batches at the last :meth:`step`.
        target: the newest plan.
        adopted: the version that all applications follow; None while some still move.
        routes: by application, ((device, share), ...) with a sum of 1; other warm devices stand by with share 0.
    """

    def __init__(self, limit_s: float = 5.0):
        self._limit_s = limit_s
        self._warm: dict[str, dict[str, frozenset[int]]] = {}
        self._received_plan: dict[str, int] = {}
        self._residents: dict[str, frozenset[int]] = {}
        #: by device that has not received the target: the variants that stay there once they are warm
        self._staying: dict[str, frozenset[int]] = {}
        self._current: dict[str, _Planned] = {}
        self._pending: dict[str, _Planned] = {}
        self._pending_since: dict[str, float] = {}
        self.not_in_use: frozenset[str] = frozenset()
        self.target = PlanSpec(version=0)
        self.adopted: int | None = None
        self.routes: Routes = {}

    def set_target(self, plan: PlanSpec, now: float) -> None:
        before, self._residents = self._residents, _residents(plan)
        self.target = plan
        self.adopted = None
        for device in self._warm:
            staying = self._staying.get(device, before.get(device, frozenset()))
            self._set_staying(device, staying & self._residents.get(device, frozenset()))
        wanted = planned_applications(plan)
        self._pending = {name: wanted.get(name, _NOTHING) for name in wanted.keys() | self._current.keys()}
        self._pending_since = {name: self._pending_since.get(name, now) for name in self._pending}

    def warm(self, device: str, variants: Mapping[str, frozenset[int]], received_plan: int = 0) -> None:
        """Set the ids of a device's warm variants by application.

        Args:
            received_plan: version of the newest plan that the device has received; 0: not reported.
        """
        self._warm[device] = variants
        if self._received_plan.get(device) != received_plan:
            self._received_plan[device] = received_plan
            # It may have received plans that this gateway has not.
            self._set_staying(device, frozenset())

    def _set_staying(self, device: str, variants: frozenset[int]) -> None:
        if self._received_plan[device] in (0, self.target.version):
            self._staying.pop(device, None)
        else:
            self._staying[device] = variants

    def reported(self, device: str) -> bool:
        return device in self._warm

    def lost(self, device: str) -> None:
        for known in (self._warm, self._received_plan, self._staying):
            known.pop(device, None)

    def step(self, now: float, not_in_use: frozenset[str] = frozenset()) -> list[str]:
        """Move applications that may move, update :attr:`routes`; return those that moved."""
        self.not_in_use = not_in_use
        moved = [name for name, planned in self._pending.items() if planned.shares and self._may_move(name, now)]
        for name in moved:
            self._move(name)
        if not any(planned.shares for planned in self._pending.values()):
            for name in list(self._pending):
                moved.append(name)
                self._move(name)
            if self.adopted is None:
                self.adopted = self.target.version
        self.routes = {name: self._serving(name, planned) for name, planned in self._current.items()}
        return moved

    def due(self) -> float:
        return min((self._pending_since[name] + self._limit_s for name in self._pending), default=math.inf)

    @property
    def cold(self) -> list[str]:
        """Applications that the newest plan routes and that no device can serve now."""
        return sorted(name for name in planned_applications(self.target) if not self.routes.get(name))

    def moving(self, name: str) -> bool:
        return name in self._pending

    def devices(self) -> set[str]:
        both = [*self._current.values(), *self._pending.values()]
        return {device for planned in both for device, _ in planned.shares}

    def _may_move(self, name: str, now: float) -> bool:
        planned, current = self._pending[name], self._current.get(name, _NOTHING)
        old_works = any(self._serves(device, name) for device, _ in current.shares)
        if not old_works or now >= self._pending_since[name] + self._limit_s:
            return any(self._serves(device, name) for device, _ in planned.shares)
        if not all(self._fully_warm(name, planned, device) for device, _ in planned.shares):
            return False
        return self._in_use(planned, name) or not self._in_use(current, name)

    def _in_use(self, planned: _Planned, name: str) -> bool:
        return any(device not in self.not_in_use and self._serves(device, name) for device, _ in planned.shares)

    def _move(self, name: str) -> None:
        planned = self._pending.pop(name)
        self._pending_since.pop(name, None)
        if planned.shares:
            self._current[name] = planned
        else:
            self._current.pop(name, None)

    def _serves(self, device: str, name: str) -> bool:
        return bool(self._warm.get(device, {}).get(name))

    def _fully_warm(self, name: str, planned: _Planned, device: str) -> bool:
        warm = self._warm.get(device, {}).get(name, frozenset())
        staying = self._staying.get(device, warm)
        return bool(warm & staying) and planned.variants[device] <= warm & staying

    def _serving(self, name: str, planned: _Planned) -> tuple[tuple[str, float], ...]:
        able = {device: share for device, share in planned.shares if self._serves(device, name)}
        total = sum(able.values())
        unplanned_devices = sorted(device for device in self._warm if device not in able and self._serves(device, name))
        return (*((device, share / total) for device, share in able.items()), *((d, 0.0) for d in unplanned_devices))
