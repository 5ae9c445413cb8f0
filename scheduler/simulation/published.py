"""Published stacks of a simulation: devices load all that is planned there before they serve.

Where the scenario makes before it breaks, devices that nothing uses load first, and the old plan stays in force until
they are ready.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.allocation.problem import Placement
from workers.dispatch.binding import QueryClass
from workers.dispatch.options import OptionSet, ServingOption
from workers.dispatch.policy_tables import PolicySet
from workers.dispatch.published.binding import PublishedBinding
from workers.dispatch.stack import Stack

from .controller import Planned
from .devices import PublishedDevice
from .engine import Engine
from .scenario import Scenario
from .stacks import POLICIES, ROUTERS


class PublishedEngine(Engine):
    def __init__(self, scenario: Scenario, stack: Stack, progress: Callable[[float], None] | None = None):
        router = ROUTERS[stack.routing](scenario.seed)
        binding = PublishedBinding(router, POLICIES[stack.batching], slack_s=0.0)
        self._policies: dict[tuple[str, str], PolicySet] = {}
        #: devices that the plan in force uses; the next plan, and the devices that it waits for
        self._used: set[str] = set()
        self._coming: tuple[Planned, set[str]] | None = None
        super().__init__(scenario, stack.strategy, binding, PublishedDevice, progress)

    def _loaded(self) -> dict[str, list[str]]:
        if not self._instant_loads:
            return super()._loaded()
        return {name: list(device.planned) for name, device in self._devices.items()}

    def _adopt(self, planned: Planned, now: float) -> None:
        first = self._scenario.make_before_break and self._used and not self._instant_loads
        if first and self._prepare(planned, now):
            return
        self._put_in_force(planned, now)

    def _prepare(self, planned: Planned, now: float) -> bool:
        """Have the devices that nothing uses load what they are to run; whether any must."""
        here = self._placed(planned)
        waiting = set()
        for name, device in self._devices.items():
            if name not in self._used:
                device.plan([placement.variant for placement in here[name]])
                if not device.ready:
                    waiting.add(name)
        self._coming = (planned, waiting) if waiting else None
        for name in sorted(waiting):
            if self._devices[name].idle:
                self._load(self._devices[name], now)
        return bool(waiting)

    def _placed(self, planned: Planned) -> dict[str, list[Placement]]:
        here: dict[str, list[Placement]] = {name: [] for name in self._devices}
        for placement in planned.allocation.placements:
            here[placement.device].append(placement)
        return here

    def _put_in_force(self, planned: Planned, now: float) -> None:
        here, self._coming = self._placed(planned), None
        self._used = {name for name, placements in here.items() if placements}
        self._policies = {
            (some.application, device): PolicySet(some.variants, some.policies)
            for some in planned.allocation.policies
            for device in some.devices
        }
        for name, device in self._devices.items():
            residents = planned.allocation.residents.get(name, ())
            device.plan([placement.variant for placement in here[name]], residents)
            self._offer(device, here[name], now)
            # A load that takes no time need not wait for the batch under way.
            while self._instant_loads and device.load_next():
                device.load_ended()
        for device in self._devices.values():
            if not device.ready:
                self._hold(device, now)
        self._act(self._binding.wake(now), now)
        for device in self._devices.values():
            if device.idle:
                self._load(device, now)

    def _offer(self, device: PublishedDevice, placements: list[Placement], now: float) -> None:
        warm = sorted({*device.warm(), *device.loads}, key=self._index.__getitem__)
        policies = {name: self._policies.get((name, device.name)) for name in self._names}
        offer = tuple(placements), tuple(warm), tuple(policies.values())
        if offer == device.offer:
            return
        device.offer = offer
        variants, options = self._by_kind[device.kind], {}
        for placement in placements:
            variant, rows, rate = variants[placement.variant], placement.max_batch, placement.rate
            option = ServingOption(
                variant.id,
                variant.accuracy,
                variant.latency,
                max(rows, variant.latency.largest),
                rate=rate,
                slice_rows=rows,
            )
            options.setdefault(variant.application, []).append(option)
        for variant in (variants[id] for id in warm if id not in device.planned):
            if variant.application in options:
                option = ServingOption(
                    variant.id, variant.accuracy, variant.latency, variant.latency.largest, planned=False
                )
                options[variant.application].append(option)
        option_sets = {QueryClass(name): OptionSet(some, policies[name]) for name, some in options.items()}
        self._binding.offered({device.name: option_sets}, now)

    def _hold(self, device: PublishedDevice, now: float) -> None:
        until = now if device.idle else device.free_at
        for variant in device.loads:
            until += self._load_s[variant]
        self._act(self._binding.device_changed(device.name, now, busy_until=until), now)

    def _load(self, device: PublishedDevice, now: float) -> None:
        if device.load_next():
            device.free_at = now + self._load_s[device.loading]
            self._at(device.free_at, self._on_loaded, device)
            self._hold(device, now)

    def _on_loaded(self, now: float, device: PublishedDevice) -> None:
        device.load_ended()
        self._load(device, now)
        if device.ready:
            self._hold(device, now)
            if self._coming is not None:
                planned, waiting = self._coming
                waiting.discard(device.name)
                if not waiting:
                    self._put_in_force(planned, now)
