"""Connections to the executors that a plan or a route names; lost ones reconnect."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

from workers.protocol.endings import Ending
from workers.protocol.frames import Buffer, ExecutorState, Frame, RunBatch, WarmVariant, Withdraw
from workers.protocol.specs import Reach
from workers.transport.endpoints import Endpoint, TlsClient

from .executor_connection import Caller, ExecutorConnection, Listener

#: seconds from a core's first device in which the others may follow: a device on which its last core has left a batch
#: is free once that has run, or its lease has ended
TAKEOVER_S = 2.5


class Executors:
    """The executors of all devices.

    Attributes:
        first: no other core is to be preferred to this one.
        retiring: this core stops: it gives each device back once nothing is in flight there.
    """

    def __init__(self, gateway: str, listener: Listener, client: TlsClient | None = None):
        self.first, self.retiring = True, False
        self._led_since = -math.inf
        self._caller = Caller(gateway, client, lambda: self.leads, lambda: self.stands_by)
        self._listener = listener
        self._by_device: dict[str, ExecutorConnection] = {}
        self._closing: set[asyncio.Task] = set()
        self._closed = False

    @property
    def leads(self) -> bool:
        """Whether this core has a device, and keeps it."""
        return not self.retiring and self.held

    @property
    def held(self) -> bool:
        """Whether this core has a device."""
        return any(executor.state is not None for executor in self._by_device.values())

    def taking_over(self, now: float) -> bool:
        """Return whether this core may expect to get more devices at any moment."""
        return now < self._led_since + TAKEOVER_S and any(
            executor.state is None and executor.lease is not None for executor in self._by_device.values()
        )

    def got(self, now: float) -> None:
        """This core has got a device; perhaps its first one."""
        if sum(executor.state is not None for executor in self._by_device.values()) == 1:
            self._led_since = now

    @property
    def stands_by(self) -> bool:
        """Whether this core has no devices, while another one has or gets them."""
        if self.leads:
            return False
        leases = [executor.lease for executor in self._by_device.values() if executor.lease is not None]
        if any(lease.offered for lease in leases):
            # The others follow, each once nothing is in flight there.
            return False
        if any(lease.elsewhere for lease in leases):
            return True
        # A core that is stopped gives all devices back at once: queries must not wait for one that is to be preferred.
        return not self.first and not any(lease.given_up for lease in leases)

    def look_after_leases(self, now: float, in_flight: Mapping[str, int]) -> None:
        """Ask for devices and to keep them, and release those that others get."""
        for device, executor in list(self._by_device.items()):
            lease = executor.lease
            if lease is not None and (self.retiring or lease.reclaimed) and not in_flight.get(device):
                executor.release(self.retiring)
            executor.look_after_lease(now)

    def keep(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Hold a connection to each of these devices and to no other."""
        if self._closed:
            return
        gone = [device for device, executor in self._by_device.items() if endpoints.get(device) != executor.endpoint]
        retired = [self._by_device.pop(device) for device in gone]
        for device, endpoint in endpoints.items():
            if device not in self._by_device:
                self._by_device[device] = ExecutorConnection(device, endpoint, self._caller, self._listener)
        # Last: the listener may adopt a plan that waited for a device which is gone now, and call this again.
        for executor in retired:
            self._retire(executor)

    def _retire(self, executor: ExecutorConnection) -> None:
        known = executor.state is not None
        executor.state = None
        task = asyncio.create_task(executor.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        if known:
            self._listener.executor_lost(executor.device, "the plan no longer names this device")
            # Not a crash, whatever is in flight there.
            self._listener.executor_ended(executor.device, Ending(0, False, "the plan no longer names this device"))

    def get(self, device: str) -> ExecutorConnection | None:
        return self._by_device.get(device)

    def states(self) -> dict[str, ExecutorState | None]:
        """By device; None: not reachable."""
        return {device: executor.state for device, executor in self._by_device.items()}

    def reach(self, now: float) -> Reach:
        """The devices that answer, whichever core has them, and those that do not."""
        since = {device: executor.unreached_since for device, executor in self._by_device.items()}
        return Reach(
            reached=tuple(device for device, lost in since.items() if lost is None),
            unreached={device: max(0.0, now - lost) for device, lost in since.items() if lost is not None},
        )

    def warm(self, application: str, draining: bool = False) -> list[tuple[str, WarmVariant]]:
        """Return (device, variant) for the application's warm variants."""
        return [
            (device, variant)
            for device, executor in self._by_device.items()
            if executor.state is not None and executor.state.draining is draining
            for variant in executor.state.warm
            if variant.application == application
        ]

    def send(self, device: str, message: Frame) -> bool:
        """Queue a frame; False when the device cannot take it."""
        executor = self._by_device.get(device)
        return executor is not None and executor.send(message)

    def send_batches(self, device: str, messages: Sequence[tuple[RunBatch, Sequence[Buffer]]]) -> bool:
        """Queue all batches for a device or none; False when it cannot take them."""
        executor = self._by_device.get(device)
        return executor is not None and executor.send_batches(messages)

    def broadcast(self, message: Frame) -> None:
        for executor in self._by_device.values():
            executor.send(message)

    def withdraw(self, device: str, query: int) -> None:
        self.send(device, Withdraw(query))

    async def close(self) -> None:
        self._closed = True
        executors, self._by_device = list(self._by_device.values()), {}
        await asyncio.gather(*(executor.close(stops=True) for executor in executors), *self._closing)
