"""Connections to the executors that a plan or a route names; lost ones reconnect."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from workers import log
from workers.protocol import endings
from workers.protocol.endings import Ending
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import (
    Buffer,
    ExecutorState,
    Frame,
    FromExecutor,
    Hello,
    LeaseState,
    Refusal,
    ReleaseLease,
    Results,
    RunBatch,
    WarmVariant,
)
from workers.protocol.specs import Reach
from workers.trust.endpoints import Endpoint, TlsClient, connect

from .leases import DeviceLease

logger = log.get("gateway.executors")

_PEER = socket.SOL_SOCKET, socket.SO_PEERCRED

#: questions about the lease, of which one says what was learned of the device
LEARNED_EVERY = 5
#: pause before a lost executor is tried again: from, to (doubled each time)
BACKOFF_S = (0.05, 1.0)
#: seconds within which an executor that accepts a connection must send its state; beyond, it is considered stuck
HELLO_S = 3.0
#: seconds that a supervisor may take to publish how a process ended
ENDING_WAIT_S = 3.0
#: the same where the process still runs, or is gone already
ENDED_WAIT_S = 1.0
#: seconds between two polls for that
ENDING_EVERY_S = 0.01
#: bytes that may wait for an executor to read them; beyond, it gets no more batches
MAX_PENDING_BYTES = 64 * 1024 * 1024
#: seconds from a core's first device in which the others may follow: a device on which its last core has left a batch
#: is free once that has run, or its lease has ended
TAKEOVER_S = 2.5


class Executors:
    """The executors of all devices.

    Args:
        rollout: the :class:`.rollout.Rollout`, which gets what executors report, in the event loop.

    Attributes:
        name: the gateway's, for executors.
        client: for devices on other boxes.
        first: no other core is to be preferred to this one.
        retiring: this core stops: it gives each device back once nothing is in flight there.
    """

    def __init__(self, gateway: str, rollout: Any, client: TlsClient | None = None):
        self.first, self.retiring = True, False
        self._led_since = -math.inf
        self.name, self.client = gateway, client
        self._rollout = rollout
        self._by_device: dict[str, ExecutorConnection] = {}
        self._closing: set[asyncio.Task] = set()
        self._closed = False

    @property
    def leads(self) -> bool:
        return not self.retiring and self.held

    @property
    def held(self) -> bool:
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
        for device, executor in list(self._by_device.items()):
            lease = executor.lease
            if lease is not None and (self.retiring or lease.reclaimed) and not in_flight.get(device):
                executor.release(self.retiring)
            executor.look_after_lease(now)

    def keep(self, endpoints: Mapping[str, Endpoint]) -> None:
        if self._closed:
            return
        gone = [device for device, executor in self._by_device.items() if endpoints.get(device) != executor.endpoint]
        retired = [self._by_device.pop(device) for device in gone]
        for device, endpoint in endpoints.items():
            if device not in self._by_device:
                self._by_device[device] = ExecutorConnection(device, endpoint, self, self._rollout)
        # Last: the rollout may adopt a plan that waited for a device which is gone now, and call this again.
        for executor in retired:
            task = asyncio.create_task(executor.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            executor.leave("the plan no longer names this device")

    def get(self, device: str) -> ExecutorConnection | None:
        return self._by_device.get(device)

    def states(self) -> dict[str, ExecutorState | None]:
        return {device: executor.state for device, executor in self._by_device.items()}

    def reach(self, now: float) -> Reach:
        since = {device: executor.unreached_since for device, executor in self._by_device.items()}
        return Reach(
            reached=tuple(device for device, lost in since.items() if lost is None),
            unreached={device: max(0.0, now - lost) for device, lost in since.items() if lost is not None},
        )

    def warm(self, application: str) -> list[tuple[str, WarmVariant]]:
        return [
            (device, variant)
            for device, executor in self._by_device.items()
            if executor.state is not None and not executor.state.draining
            for variant in executor.state.warm
            if variant.application == application
        ]

    def send(self, device: str, message: Frame) -> bool:
        executor = self._by_device.get(device)
        return executor is not None and executor.send(message)

    def send_batches(self, device: str, messages: Sequence[tuple[RunBatch, Sequence[Buffer]]]) -> bool:
        executor = self._by_device.get(device)
        return executor is not None and executor.send_batches(messages)

    def broadcast(self, message: Frame) -> None:
        for executor in self._by_device.values():
            executor.send(message)

    async def close(self) -> None:
        self._closed = True
        executors, self._by_device = list(self._by_device.values()), {}
        await asyncio.gather(*(executor.close(stops=True) for executor in executors), *self._closing)


class ExecutorConnection:
    def __init__(self, device: str, endpoint: Endpoint, caller: Executors, rollout: Any):
        self.device = device
        self.endpoint = endpoint
        self.state: ExecutorState | None = None
        """None: not connected, no state received yet, or another core has the device"""
        self.owed_since: float | None = None
        """when a query was sent without any message since; None: nothing is owed"""
        self.lease: DeviceLease | None = None
        """None: not connected, or an executor of older code, which every core has"""
        self.unreached_since: float | None = time.monotonic()
        """when the executor was lost, or this core was notified; None: it answers, whichever core has the device"""
        self._reported: ExecutorState | None = None
        self._caller = caller
        self._rollout = rollout
        self._connection: FrameConnection | None = None
        self._closed: asyncio.Event = asyncio.Event()
        self._reason = ""
        self._dropped = False
        self._pid = 0
        self._task = asyncio.create_task(self._run(), name=f"executor-{device}")

    def send(self, message: Frame) -> bool:
        connection = self._connection
        if connection is None or self.state is None:
            return False
        return connection.send(message)

    def send_batches(self, messages: Sequence[tuple[RunBatch, Sequence[Buffer]]]) -> bool:
        """Queue all batches or none: False if the executor is away or does not read."""
        connection = self._connection
        if connection is None or self.state is None:
            return False
        if connection.backed_up and connection.pending_bytes() > MAX_PENDING_BYTES:
            return False
        if self.owed_since is None:
            self.owed_since = time.monotonic()
        return connection.send_all(messages)

    def look_after_lease(self, now: float) -> None:
        lease, connection = self.lease, self._connection
        # First: whether this core leads is a question about all devices.
        if lease is None or connection is None or not lease.due(now):
            return
        caller = self._caller
        question = lease.question(caller.leads, caller.stands_by, now)
        if question is not None:
            if lease.held and question.number % LEARNED_EVERY == 0:
                question = msgspec.structs.replace(question, learned=self._rollout.core.learned(self.device))
            connection.send(question)

    def release(self, stops: bool = False) -> None:
        """Give the device back, on which nothing is in flight."""
        if self.lease is not None and self.lease.held:
            self._connection.send(ReleaseLease(stops, self._rollout.core.learned(self.device)))
            self.lease.release(time.monotonic(), stops)
            self.leave("it was released")

    def drop(self, reason: str) -> None:
        if self._connection is not None and self._connection.transport is not None:
            self._reason = reason
            self._dropped = True
            self._connection.transport.abort()

    async def close(self, stops: bool = False) -> None:
        if self.lease is not None and self.lease.held:
            self._connection.send(ReleaseLease(stops))
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        pause, failures = BACKOFF_S[0], 0
        while True:
            try:
                # Not wait_for(), which may lose a cancellation.
                async with asyncio.timeout(HELLO_S):
                    await connect(self.endpoint, self._make, self._caller.client)
                if await self._converse():
                    pause, failures = BACKOFF_S[0], 0
            except Exception as error:
                # Whatever it is: without this task the device would not be tried again.
                failures += 1
                if failures in (1, 10) or failures % 300 == 0:
                    logger.warning("executor_unreachable", device=self.device, reason=str(error) or repr(error))
            await asyncio.sleep(pause)
            pause = min(BACKOFF_S[1], pause * 2)

    async def _converse(self) -> bool:
        """Serve one connection until it ends; whether the executor ever sent its state."""
        try:
            async with asyncio.timeout(HELLO_S):
                await self._closed.wait()
        except TimeoutError:
            if self._reported is None:
                self.drop(f"no state within {HELLO_S:g} s")
            await self._closed.wait()
        reported = self._reported is not None
        self._connection = self.lease = self._reported = None
        if self.unreached_since is None:
            self.unreached_since = time.monotonic()
        if self.state is not None:
            self.state = None
            self._rollout.executor_lost(self.device, self._reason)
            ending = None
            try:
                ending = await self._ending()
            finally:
                self._rollout.core.ended(self.device, ending)
        return reported

    async def _ending(self) -> Ending | None:
        """Return how the process ended; None: unknown, or only the connection was lost."""
        lost = time.monotonic()
        while not self._dropped and self.endpoint.local:
            ending = endings.read(self.endpoint.address, self._pid)
            waited = time.monotonic() - lost
            # An ended process is a zombie until its supervisor has waited for it; otherwise no ending will follow.
            if ending is not None or waited > (ENDING_WAIT_S if _ends(self._pid) else ENDED_WAIT_S):
                return ending
            await asyncio.sleep(ENDING_EVERY_S)
        return None

    def _make(self, kind: type[FrameConnection] = FrameConnection, **named) -> FrameConnection:
        self._closed = asyncio.Event()
        self._reason = ""
        self._dropped = False
        self.owed_since = None
        return kind(FromExecutor, self._on_message, self._on_closed, self._on_connected, _memory, **named)

    def _on_connected(self, connection: FrameConnection) -> None:
        self._connection = connection
        if self.endpoint.local:
            peer = connection.transport.get_extra_info("socket").getsockopt(*_PEER, 12)
            self._pid = struct.unpack("3i", peer)[0]
        connection.send(Hello("gateway", self._caller.name, leases=True))

    def _on_closed(self, connection: FrameConnection, error: Exception | None) -> None:
        if connection is self._connection or self._connection is None:
            self._reason = self._reason or (str(error) if error is not None else "closed by the executor")
            self._closed.set()

    def _on_message(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        if connection is not self._connection:
            return
        self.owed_since = None
        if type(message) is Results:
            self._rollout.core.results(self.device, message, body)
        elif isinstance(message, Refusal):
            self._rollout.core.refused_by_device(self.device, message)
        elif isinstance(message, ExecutorState):
            if message.device != self.device:
                self.drop(f"{self.endpoint.address} belongs to device {message.device!r}")
                return
            self._reported = message
            self.unreached_since = None
            self._use_state()
        elif isinstance(message, LeaseState):
            self._leased(message)

    def _leased(self, message: LeaseState) -> None:
        now = time.monotonic()
        if self.lease is None:
            self.lease = DeviceLease(self._caller.name)
        lease, was_reclaimed = self.lease, self.lease.reclaimed
        echo_s = lease.reported(message, now)
        if not lease.held:
            self.leave(f"core {message.holder!r} has it" if message.holder else "its lease has run out")
        if echo_s is not None and not self.endpoint.local:
            self._rollout.core.network.echoed(self.device, echo_s, now)
        if lease.held:
            if self.state is None:
                logger.info("device_leased", device=self.device, epoch=message.epoch)
                self._use_state()
            if lease.reclaimed and not was_reclaimed:
                self._rollout.core.reclaimed(self.device)
        self.look_after_lease(now)

    def _use_state(self) -> None:
        if self._reported is not None and (self.lease is None or self.lease.held):
            self.state = self._reported
            self._rollout.executor_state(self.device, self._reported)

    def leave(self, reason: str) -> None:
        """The device is no longer this core's: no crash, whatever is in flight there."""
        if self.state is not None:
            self.state = None
            self._rollout.executor_lost(self.device, reason)
            self._rollout.core.ended(self.device, Ending(0, False, reason))


def _memory(size: int) -> np.ndarray:
    """Memory for a large frame, not zeroed, since all of it is read into."""
    return np.empty(size, np.uint8)


def _ends(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False
