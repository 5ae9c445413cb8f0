"""Connections to the executors that a plan or a route names; lost ones reconnect."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Container, Mapping, Sequence
from typing import Protocol

import numpy as np

from workers import log
from workers.protocol import endings
from workers.protocol.endings import Ending
from workers.protocol.frames import (
    Buffer,
    ExecutorState,
    Frame,
    FrameConnection,
    FromExecutor,
    Hello,
    Refusal,
    Results,
    RunBatch,
    WarmVariant,
    Withdraw,
    connect,
)

logger = log.get("gateway.executors")

_PEER = socket.SOL_SOCKET, socket.SO_PEERCRED

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


def _memory(size: int) -> np.ndarray:
    """Memory for a large frame, not zeroed, since all of it is read into."""
    return np.empty(size, np.uint8)


class Listener(Protocol):
    """Receives what executors send. Called from the event loop; must not raise."""

    def executor_state(self, device: str, state: ExecutorState) -> None:
        """Handle the device's state, on connecting and at each change."""

    def executor_results(self, device: str, results: Results, body: memoryview) -> None:
        """Handle answers to queries of a batch."""

    def executor_refusal(self, device: str, refusal: Refusal) -> None:
        """Handle a query that the device does not answer."""

    def executor_lost(self, device: str, reason: str) -> None:
        """Handle a lost connection and its queries; :meth:`executor_ended` follows."""

    def executor_ended(self, device: str, ending: Ending | None) -> None:
        """Handle the end of the process; None: unknown, or only the connection ended."""


class ExecutorConnection:
    """The connection to one device's executor."""

    def __init__(self, device: str, endpoint: str, gateway: str, listener: Listener):
        self.device = device
        self.endpoint = endpoint
        self.state: ExecutorState | None = None
        """None: not connected, or no state received yet"""
        self.owed_since: float | None = None
        """when a query was sent without any message since; None: nothing is owed"""
        self._gateway = gateway
        self._listener = listener
        self._connection: FrameConnection | None = None
        self._closed: asyncio.Event = asyncio.Event()
        self._reason = ""
        self._dropped = False
        self._pid = 0
        self._task = asyncio.create_task(self._run(), name=f"executor-{device}")

    def send(self, message: Frame) -> bool:
        """Queue a frame; False when the executor is away."""
        connection = self._connection
        if connection is None or self.state is None:
            return False
        return connection.send(message)

    def send_batches(self, messages: Sequence[tuple[RunBatch, Sequence[Buffer]]]) -> bool:
        """Queue all batches or none: False if the executor is away or does not read."""
        connection = self._connection
        if connection is None or self.state is None or (connection.backed_up and _full(connection)):
            return False
        if self.owed_since is None:
            self.owed_since = time.monotonic()
        return connection.send_all(messages)

    def drop(self, reason: str) -> None:
        """Abort the connection; it reconnects."""
        if self._connection is not None and self._connection.transport is not None:
            self._reason = reason
            self._dropped = True
            self._connection.transport.abort()

    async def close(self) -> None:
        """Disconnect for good."""
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
                    await connect(self.endpoint, self._make)
                if await self._converse():
                    pause, failures = BACKOFF_S[0], 0
            except (OSError, ValueError, TimeoutError) as error:
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
            if self.state is None:
                self.drop(f"no state within {HELLO_S:g} s")
            await self._closed.wait()
        reported = self.state is not None
        self._connection = None
        if reported:
            self.state = None
            self._listener.executor_lost(self.device, self._reason)
            ending = None
            try:
                ending = await self._ending()
            finally:
                self._listener.executor_ended(self.device, ending)
        return reported

    async def _ending(self) -> Ending | None:
        """Return how the process ended; None: unknown, or only the connection was lost."""
        lost = time.monotonic()
        while not self._dropped:
            ending = endings.read(self.endpoint, self._pid)
            waited = time.monotonic() - lost
            # An ended process is a zombie until its supervisor has waited for it; otherwise no ending will follow.
            if ending is not None or waited > (ENDING_WAIT_S if _ends(self._pid) else ENDED_WAIT_S):
                return ending
            await asyncio.sleep(ENDING_EVERY_S)
        return None

    def _make(self) -> FrameConnection:
        self._closed = asyncio.Event()
        self._reason = ""
        self._dropped = False
        self.owed_since = None
        return FrameConnection(FromExecutor, self._on_message, self._on_closed, self._on_connected, _memory)

    def _on_connected(self, connection: FrameConnection) -> None:
        self._connection = connection
        self._pid = _peer_pid(connection)
        connection.send(Hello("gateway", self._gateway))

    def _on_closed(self, connection: FrameConnection, error: Exception | None) -> None:
        if connection is self._connection or self._connection is None:
            self._reason = self._reason or (str(error) if error is not None else "closed by the executor")
            self._closed.set()

    def _on_message(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        if connection is not self._connection:
            return
        self.owed_since = None
        if type(message) is Results:
            self._listener.executor_results(self.device, message, body)
        elif isinstance(message, Refusal):
            self._listener.executor_refusal(self.device, message)
        elif isinstance(message, ExecutorState):
            if message.device != self.device:
                self.drop(f"{self.endpoint} belongs to device {message.device!r}")
                return
            self.state = message
            self._listener.executor_state(self.device, message)


def _full(connection: FrameConnection) -> bool:
    return connection.pending_bytes() > MAX_PENDING_BYTES


def _peer_pid(connection: FrameConnection) -> int:
    """The process at the other end of a unix socket."""
    pid, _, _ = struct.unpack("3i", connection.transport.get_extra_info("socket").getsockopt(*_PEER, 12))
    return pid


def _ends(pid: int) -> bool:
    """Return True if the process is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False


class Executors:
    """The executors of all devices."""

    def __init__(self, gateway: str, listener: Listener):
        self._gateway = gateway
        self._listener = listener
        self._by_device: dict[str, ExecutorConnection] = {}
        self._closing: set[asyncio.Task] = set()
        self._closed = False

    def keep(self, endpoints: Mapping[str, str]) -> None:
        """Hold a connection to each of these devices and to no other; does nothing once closed."""
        if self._closed:
            return
        for device, executor in list(self._by_device.items()):
            if endpoints.get(device) != executor.endpoint:
                self._retire(self._by_device.pop(device))
        for device, endpoint in endpoints.items():
            if device not in self._by_device:
                self._by_device[device] = ExecutorConnection(device, endpoint, self._gateway, self._listener)

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
        """The device's connection, up or not."""
        return self._by_device.get(device)

    def states(self) -> dict[str, ExecutorState | None]:
        """By device; None: not reachable."""
        return {device: executor.state for device, executor in self._by_device.items()}

    def warm(self, application: str, draining: bool = False) -> list[tuple[str, WarmVariant]]:
        """Return (device, variant) for the application's warm variants.

        Args:
            draining: look at draining devices, instead of those that take new queries.
        """
        return [
            (device, variant)
            for device, executor in self._by_device.items()
            if executor.state is not None and executor.state.draining is draining
            for variant in executor.state.warm
            if variant.application == application
        ]

    def only_devices(self, reserved: Container[str]) -> set[str]:
        """Return devices, but for reserved ones, that alone serve some application."""
        hosts: dict[str, set[str]] = {}
        for device, executor in self._by_device.items():
            if executor.state is not None and not executor.state.draining and device not in reserved:
                for variant in executor.state.warm:
                    hosts.setdefault(variant.application, set()).add(device)
        return set().union(*(devices for devices in hosts.values() if len(devices) == 1))

    def send(self, device: str, message: Frame) -> bool:
        """Queue a frame; False when the device cannot take it."""
        executor = self._by_device.get(device)
        return executor is not None and executor.send(message)

    def send_batches(self, device: str, messages: Sequence[tuple[RunBatch, Sequence[Buffer]]]) -> bool:
        """Queue all batches for a device or none; False when it cannot take them."""
        executor = self._by_device.get(device)
        return executor is not None and executor.send_batches(messages)

    def broadcast(self, message: Frame) -> None:
        """Queue a frame for every executor that is up."""
        for executor in self._by_device.values():
            executor.send(message)

    def withdraw(self, device: str, query: int) -> None:
        """Ask the device to drop a query."""
        self.send(device, Withdraw(query))

    async def close(self) -> None:
        """Disconnect from all, for good."""
        self._closed = True
        executors, self._by_device = list(self._by_device.values()), {}
        await asyncio.gather(*(executor.close() for executor in executors), *self._closing)
