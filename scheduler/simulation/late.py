"""Late binding of a simulation: devices load what the plan wants when they can best be spared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from scheduler.allocation.standby import ROOM
from workers.dispatch.binding import Dispatch, QueryClass
from workers.dispatch.late.binding import LateBinding
from workers.dispatch.options import OptionSet, ServingOption
from workers.dispatch.stack import Stack

from .controller import Planned
from .devices import LateDevice, SimulatedQuery, SimulatedVariant
from .engine import DROPPED, ROUNDING_S, Engine
from .scenario import Scenario

#: the longest batch that is offered, as part of the SLO
SHARE_OF_SLO = 1.0
#: devices keep more than the plan places
KEEPS_STANDBY = True
#: one device of a type in this many may load at a time, at least one
PART = 4
#: part of the SLO for which the only device of an application may stop
SPARE = 0.5
#: a load that has been due for this many times its duration waits no longer: there may never be a better moment
PATIENCE = 30.0
#: the same for variants whose absence costs queries: planned ones, and all where devices have no room
PLANNED_PATIENCE = 2.0


class _Hosting(NamedTuple):
    """Which applications devices serve; until a load begins or ends, or a new plan.

    Attributes:
        here: by device.
        hosts: number of devices that serve an application now; ``soon``: when one will that loads.
        loading: number of devices that load, by type.
    """

    here: dict[str, set[str]]
    hosts: Counter[str]
    soon: dict[str, float]
    loading: Counter[str]


class LateEngine(Engine):
    def __init__(self, scenario: Scenario, stack: Stack, progress: Callable[[float], None] | None = None):
        super().__init__(scenario, stack.strategy, LateBinding(), LateDevice, progress)
        self._options: dict[tuple[str, str], ServingOption | None] = {}
        self._option_sets: dict[tuple[str, tuple[str, ...]], dict[QueryClass, OptionSet]] = {}
        #: applications for which something is still to be loaded
        self._moving: set[str] = set()
        #: the plan's standby variants are needed as soon as the others
        self._tight = False
        self._application = {model.id: model.application for model in scenario.models}
        self._of_kind = Counter(device.kind for device in self._devices.values())
        self._hosting: _Hosting | None = None
        self._weights = {a.id: a.weight for a in scenario.start.problem.applications} if scenario.start else {}

    # --- batches -----------------------------------------------------------------------------------------------------

    def _reach_loading(self, device: LateDevice, batch: Dispatch, now: float) -> None:
        device.batches.append(batch)

    def _start(self, device: LateDevice, batch: Dispatch, now: float) -> None:
        """Run it without queries that would be late even alone: the executor drops those."""
        least = now + batch.option.by_rows[1] + self._network_s
        if least > batch.deadline + ROUNDING_S and batch.option.variant in device.loaded:
            late = [query for query in batch.queries if least > query.deadline + ROUNDING_S]
            batch.queries = [query for query in batch.queries if least <= query.deadline + ROUNDING_S]
            batch.rows = len(batch.queries)
            if late:
                self._at(now + self._network_s, self._on_given_up, late)
            if not batch.queries:
                self._decline(batch, now)
                return
        super()._start(device, batch, now)

    def _on_given_up(self, now: float, queries: list[SimulatedQuery]) -> None:
        for query in queries:
            self._finish(query, DROPPED, now)

    # --- loads -------------------------------------------------------------------------------------------------------

    def _load(self, device: LateDevice, now: float) -> None:
        variant = self._next_load(device, now) if device.loads and device.idle else None
        if variant is None:
            return
        load_s = self._load_s[variant]
        device.begin(variant)
        device.free_at = now + load_s
        self._hosting = None
        # Each load makes the others wait anew: one after the other they would block the device for long.
        device.due.clear()
        self._due(device, now + load_s)
        self._at(now + load_s, self._on_loaded, device)
        self._offer([device], now)
        until = now + load_s + 2 * self._scenario.network_s
        self._act(self._binding.device_changed(device.name, now, busy_until=until), now)

    def _due(self, device: LateDevice, now: float) -> None:
        before = device.overdue_at
        device.due = {variant: device.due.get(variant, now) for variant in device.loads}
        device.overdue_at = min((self._overdue_at(device, variant) for variant in device.due), default=math.inf)
        if device.overdue_at != before and now < device.overdue_at < math.inf:
            # Nothing may happen there until then.
            self._at(device.overdue_at, self._on_overdue, device)

    def _overdue_at(self, device: LateDevice, variant: str) -> float:
        patience = PLANNED_PATIENCE if self._tight or variant in device.planned else PATIENCE
        return device.due[variant] + patience * self._load_s[variant]

    def _on_overdue(self, now: float, device: LateDevice) -> None:
        self._load(device, now)

    def _next_load(self, device: LateDevice, now: float) -> str | None:
        """Return the variant to load now, if any.

        It is the quickest of the first application that nothing serves, which answers most of its queries between the
        loads that follow; else the first in the plan's order that may be loaded.
        """
        application, hosting = self._application, self._hosting or self._find_hosts()
        here = hosting.here[device.name]
        if here and hosting.loading[device.kind] >= max(1, self._of_kind[device.kind] // PART):
            return None
        # Others that would have no device meanwhile.
        alone_s = min([self._scenario.slo_s[name] for name in here if hosting.hosts[name] == 1], default=math.inf)
        served = hosting.hosts.keys() | hosting.soon.keys()
        for variant in [*self._quickest(device, served), *device.loads]:
            name, load_s = application[variant], self._load_s[variant]
            unserved = name not in hosting.hosts and hosting.soon.get(name, math.inf) > now + load_s
            if not here or unserved or now >= self._overdue_at(device, variant) or load_s <= SPARE * alone_s:
                return variant
        return None

    def _find_hosts(self) -> _Hosting:
        here = {name: {self._application[v] for v in device.usable()} for name, device in self._devices.items()}
        found = self._hosting = _Hosting(here, Counter(), {}, Counter())
        for name, device in self._devices.items():
            if device.loading is None:
                found.hosts.update(here[name])
                continue
            found.loading[device.kind] += 1
            # A device that is loading serves, once that ends, what it loads and what it has.
            for served in {self._application[device.loading], *here[name]}:
                found.soon[served] = min(found.soon.get(served, math.inf), device.free_at)
        return found

    def _quickest(self, device: LateDevice, served: Collection[str]) -> list[str]:
        known, found = self._by_kind[device.kind], {}
        for variant in device.loads:
            name = self._application[variant]
            best = found.setdefault(name, variant)
            if known[variant].latency.seconds(1) < known[best].latency.seconds(1):
                found[name] = variant
        return [variant for name, variant in found.items() if name not in served]

    def _on_loaded(self, now: float, device: LateDevice) -> None:
        device.load_ended()
        self._hosting = None
        self._offer([*self._moved(), device], now)
        self._act(self._binding.device_changed(device.name, now, busy_until=now), now)
        self._next(device, now)
        for other in self._devices.values():
            if not other.batches:
                self._load(other, now)

    # --- plans -------------------------------------------------------------------------------------------------------

    def _adopt(self, planned: Planned, now: float) -> None:
        self._hosting = None
        resident = {name: [] for name in self._devices}
        if KEEPS_STANDBY:
            resident = {name: list(planned.allocation.residents.get(name, ())) for name in self._devices}
        placed: dict[str, set[str]] = {name: set() for name in self._devices}
        for placement in planned.allocation.placements:
            placed[placement.device].add(placement.variant)
            if placement.variant not in resident[placement.device]:
                resident[placement.device].append(placement.variant)
        # Devices have too little room for loads to wait for a calm.
        self._tight = planned.allocation.carried is not None and planned.allocation.carried < ROOM
        for name, device in self._devices.items():
            device.blocked = planned.blocked[name]
            device.planned = frozenset(placed[name])
            device.plan(sorted(resident[name], key=device.blocked.__contains__))
            if self._instant_loads:
                # A load that takes no time need not wait for the batch under way.
                while device.loads:
                    device.begin(device.loads[0])
                    device.load_ended()
            self._due(device, now)
        self._moved()
        self._offer(self._devices.values(), now)
        for device in self._devices.values():
            if not device.batches:
                self._load(device, now)

    def _moved(self) -> list[LateDevice]:
        """Devices to offer anew: an application there no longer waits for a variant."""
        before, self._moving = self._moving, set()
        for device in self._devices.values():
            coming = [*device.loads, *([] if device.loading is None else [device.loading])]
            self._moving |= {self._application[variant] for variant in coming}
        moved = before - self._moving
        if not moved:
            return []
        return [
            device
            for device in self._devices.values()
            if any(self._application[v] in moved and v not in device.wanted for v in device.loaded)
        ]

    def _offer(self, devices: Iterable[LateDevice], now: float) -> None:
        """A device that loads is offered with what it can run afterwards."""
        options = {device.name: self._options_of(device) for device in devices}
        self._act(self._binding.offered(options, now), now)

    def _options_of(self, device: LateDevice) -> dict[QueryClass, OptionSet]:
        # A variant that left the plan serves on only until its application has moved to the new ones.
        warm = [
            variant
            for variant in device.warm()
            if variant not in device.blocked
            and (variant in device.wanted or (KEEPS_STANDBY and self._application[variant] in self._moving))
        ]
        key = (device.kind, tuple(sorted(warm)))
        option_sets = self._option_sets.get(key)
        if option_sets is None:
            by_application: dict[str, list[ServingOption]] = {}
            for id in key[1]:
                variant = self._by_kind[device.kind][id]
                option = self._option(device.kind, variant)
                if option is not None:
                    by_application.setdefault(variant.application, []).append(option)
            option_sets = {QueryClass(name): OptionSet(options) for name, options in by_application.items()}
            self._option_sets[key] = option_sets
        return option_sets

    def _option(self, kind: str, variant: SimulatedVariant) -> ServingOption | None:
        """None: it is too slow for the SLO whatever the batch."""
        key = (kind, variant.id)
        if key not in self._options:
            slo_s = self._scenario.slo_s[variant.application] * SHARE_OF_SLO
            rows = [n for n in range(1, variant.latency.largest + 1) if variant.latency.seconds(n) <= slo_s]
            self._options[key] = (
                ServingOption(
                    variant.id,
                    variant.accuracy,
                    variant.latency,
                    max(rows),
                    self._weights.get(variant.application, 1.0),
                )
                if rows and rows[0] == 1
                else None
            )
        return self._options[key]
