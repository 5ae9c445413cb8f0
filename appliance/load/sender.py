"""Loads and their sending.

Queries of an open load count from when they were due, whether or not a connection was free: a query that finds none
gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from .book import Book
from .peers import End, Ended, HttpPeer, Peer
from .records import ABANDONED, BROKEN, LOST, UNSENT

#: seconds that a client of a closed loop waits after a refusal
REST_S = 0.05
#: queries that are sent at once while warming up
TOGETHER = 16
#: seconds between two looks for queries of an open load that took too long
EXPIRE_S = 0.1


class Phase(msgspec.Struct, frozen=True):
    """A number of seconds at one rate (queries/s)."""

    seconds: float
    rate: float


class Load(msgspec.Struct):
    """A load: ``closed_s``, ``phases`` or ``due``.

    Attributes:
        requests: whole HTTP requests, or messages where ``grpc_key`` is given; sent in turn.
        answers: by variant, the FP32 output of each request; none: not checked.
        connections: opened beforehand.
        closed_s: seconds in which each connection sends its next query once it has its answer.
        phases: an open loop with Poisson arrivals.
        due: an open loop with (seconds since the beginning, request) of each query.
        idle: further connections that send a query at the beginning and one at the end.
        warm_up: queries before those that count, at least one on each connection.
        patience_s: an answer that takes longer counts as lost.
        most: queries in flight; further ones are not sent.
        cores: where the generator may run; empty: anywhere.
        authorities: PEM file of whom to trust with TLS; empty: without TLS.
    """

    port: int
    requests: list[bytes]
    answers: dict[str, list[bytes]]
    connections: int
    closed_s: float = 0.0
    phases: list[Phase] = []
    due: list[tuple[float, int]] = []
    idle: int = 0
    warm_up: int = 0
    patience_s: float = 10.0
    seed: int = 0
    grpc_key: str = ""
    cores: list[int] = []
    authorities: str = ""
    host: str = "127.0.0.1"
    most: int = 1_000_000


class Sender:
    """Sends one load.

    Args:
        grpc_peer: makes a connection over gRPC: of what it calls at ends, address, key and authorities.

    Attributes:
        load: its requests may be replaced at any time.
        book: how queries ended so far.
        most_peers: connections that were open at once.
    """

    def __init__(self, load: Load, grpc_peer: Callable[[Ended, str, str, str], Peer] | None = None):
        self.load = load
        self._grpc_peer = grpc_peer
        self.book = Book(load.answers)
        self.most_peers = 0
        self._free: deque[Peer] = deque()
        self._trust = ssl.create_default_context(cafile=load.authorities) if load.authorities else None
        self._peers: set[Peer] = set()
        self._tasks: set[asyncio.Task] = set()
        self._in_flight: set[Peer] = set()
        self._again_until = 0.0
        self._number = 0

    # --- connections ---

    async def _open(self) -> Peer:
        load = self.load
        if load.grpc_key:
            peer = self._grpc_peer(self._ended, f"{load.host}:{load.port}", load.grpc_key, load.authorities)
        else:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(load.patience_s):
                _, peer = await loop.create_connection(
                    lambda: HttpPeer(self._ended), load.host, load.port, ssl=self._trust
                )
        self._peers.add(peer)
        self.most_peers = max(self.most_peers, len(self._peers))
        return peer

    async def connect(self, count: int) -> None:
        """Open further connections. Raises OSError."""
        for _ in range(count):
            self._free.append(await self._open())

    async def warm_up(self) -> list[Peer]:
        """Open connections, send queries that do not count; returns the idle ones.

        Raises OSError, RuntimeError: nothing listens, or it does not answer.
        """
        load = self.load
        await self.connect(load.connections + load.idle)
        await self.once_each(list(self._free))
        if not self.book.answered:
            raise RuntimeError(f"no answer while warming up: {self.book.notes[:1]}")
        while self._number < load.warm_up and self._free:
            await self.once_each(list(self._free)[: load.connections])
        idle = [self._free.pop() for _ in range(len(self._free) - load.connections)]
        self.book.forget()
        return idle

    async def once_each(self, peers: list[Peer]) -> None:
        peers = [peer for peer in peers if peer in self._peers]
        for start in range(0, len(peers), TOGETHER):
            for peer in peers[start : start + TOGETHER]:
                if peer in self._free:
                    self._free.remove(peer)
                self._send(peer, self._next(), time.perf_counter())
            await self._quiet()

    # --- queries ---

    def _next(self) -> int:
        self._number += 1
        return (self._number - 1) % len(self.load.requests)

    def _send(self, peer: Peer, request: int, due: float) -> None:
        peer.request, peer.due, peer.sent = request, due, time.perf_counter()
        self._in_flight.add(peer)
        peer.send(self.load.requests[request])

    def _ended(self, peer: Peer, end: End | None, reusable: bool) -> None:
        now = time.perf_counter()
        if end is not None:
            self._in_flight.discard(peer)
            self.book.add(peer, now, end)
        if not reusable:
            # A second answer ends a connection that the first one has ended.
            first = peer in self._peers
            self._peers.discard(peer)
            with contextlib.suppress(ValueError):
                self._free.remove(peer)
            if first and end is not None and now < self._again_until:
                self._later(self._on_new(self._next(), now))
        elif now >= self._again_until:
            self._free.append(peer)
        elif end.output is not None:
            self._send(peer, self._next(), now)
        else:
            self._later(self._rest(peer))

    def _later(self, work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rest(self, peer: Peer) -> None:
        await asyncio.sleep(REST_S)
        now = time.perf_counter()
        if now >= self._again_until:
            if peer in self._peers:
                self._free.append(peer)
        elif peer in self._peers:
            self._send(peer, self._next(), now)
        else:
            await self._on_new(self._next(), now)

    async def _on_new(self, request: int, due: float) -> None:
        try:
            peer = await self._open()
        except OSError as error:
            self.book.note(request, due, BROKEN, f"no connection: {error!r}")
            return
        except asyncio.CancelledError:
            self.book.note(request, due, ABANDONED)
            raise
        self._send(peer, request, due)

    def _expire(self) -> None:
        patience_s, now = self.load.patience_s, time.perf_counter()
        for peer in [one for one in self._in_flight if now - one.sent > patience_s]:
            self._in_flight.discard(peer)
            self.book.add(peer, float("nan"), End(LOST, note=f"nothing within {patience_s:g} s"))
            self._peers.discard(peer)
            peer.abandon()

    async def _quiet(self) -> None:
        while self._in_flight or self._tasks:
            await asyncio.sleep(0.002)
            self._expire()

    # --- loads ---

    async def closed(self) -> None:
        self._again_until = time.perf_counter() + self.load.closed_s
        peers, self._free = self._free, deque()
        for peer in peers:
            self._send(peer, self._next(), time.perf_counter())
        await asyncio.sleep(self.load.closed_s)
        await self._quiet()

    async def open(self, due: Iterable[tuple[float, int]], began: float) -> None:
        """An open loop of (seconds since ``began``, request), maybe endless."""
        expiring = asyncio.create_task(self._expire_often())
        try:
            for number, (at, request) in enumerate(due):
                while (delay := began + at - time.perf_counter()) > 0:
                    # Event loops count milliseconds.
                    await asyncio.sleep(max(delay, 0.001))
                if not number % 64:
                    # A load that is behind its times must still take in what comes back.
                    await asyncio.sleep(0)
                if self.in_flight >= self.load.most:
                    self.book.note(request, began + at, UNSENT)
                elif self._free:
                    self._send(self._free.popleft(), request, began + at)
                else:
                    self._later(self._on_new(request, began + at))
            await self._quiet()
        finally:
            expiring.cancel()

    async def _expire_often(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            self._expire()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight) + len(self._tasks)

    async def close(self) -> None:
        """Close all connections; queries without an end are abandoned."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in list(self._peers):
            if peer in self._in_flight:
                self.book.note(peer.request, peer.due, ABANDONED)
                peer.abandon()
            else:
                await peer.close()


def arrivals(phases: list[Phase], seed: int) -> list[float]:
    """When queries are due (s), a Poisson process with each phase's rate."""
    draw, due, at, until = random.Random(seed), [], 0.0, 0.0
    for phase in phases:
        # Without memory: an arrival beyond a change of the rate may be drawn anew.
        at, until = until, until + phase.seconds
        while phase.rate > 0 and (at := at + draw.expovariate(phase.rate)) < until:
            due.append(at)
    return due
