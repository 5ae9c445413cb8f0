"""The load generator's process: ``python -m benchmarks.load.process``.

It takes one :class:`Load` after the other, a line of JSON on standard input each. Once connections are open and warm it
prints ``ready``; a line ``go`` starts the load; when all queries have ended it prints a :class:`Summary`, and the rows
are in the load's file (:data:`.records.ROW`, ``numpy.save``). Queries of an open load count from when they were due,
whether or not a connection was free: a query that finds none gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
import sys
import time

import msgspec
import numpy as np
import uvloop

from .book import Book
from .peers import End, GrpcPeer, HttpPeer, Peer
from .records import BROKEN, LOST

#: seconds that a client of a closed loop waits after a refusal
REST_S = 0.05
#: queries that are sent at once while warming up
TOGETHER = 16


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
        file: where rows go.
        closed_s: seconds in which each connection sends its next query once it has its answer.
        phases: an open loop with Poisson arrivals.
        due: an open loop with (seconds since the beginning, request) of each query.
        idle: further connections that send a query at the beginning and one at the end.
        warm_up: queries before those that count, at least one on each connection.
        patience_s: an answer that takes longer counts as lost.
        cores: where the generator may run; empty: anywhere.
        authorities: PEM file of whom to trust with TLS; empty: without TLS.
    """

    port: int
    requests: list[bytes]
    answers: dict[str, list[bytes]]
    connections: int
    file: str
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


class Summary(msgspec.Struct):
    """A load that is over.

    Attributes:
        connections: the most at once.
        began: ``time.monotonic()`` of the load's second 0.
        seconds: until the last end.
        cpu_s: CPU time of the generator.
        idle_lost: idle connections that were not served at the end.
        notes: some error texts.
    """

    queries: int
    connections: int
    began: float
    seconds: float
    cpu_s: float
    idle_lost: int
    notes: list[str]


class _Run:
    """One load."""

    def __init__(self, load: Load):
        self._load = load
        self._book = Book(load.answers)
        self._free: list[Peer] = []
        self._trust = ssl.create_default_context(cafile=load.authorities) if load.authorities else None
        self._peers: set[Peer] = set()
        self._most = 0
        self._tasks: set[asyncio.Task] = set()
        self._in_flight: set[Peer] = set()
        self._again_until = 0.0
        self._number = 0

    # --- connections ---

    async def _open(self) -> Peer:
        load = self._load
        if load.grpc_key:
            peer: Peer = GrpcPeer(self._ended, f"127.0.0.1:{load.port}", load.grpc_key, load.authorities)
        else:
            loop = asyncio.get_running_loop()
            _, peer = await loop.create_connection(
                lambda: HttpPeer(self._ended), "127.0.0.1", load.port, ssl=self._trust
            )
        self._peers.add(peer)
        self._most = max(self._most, len(self._peers))
        return peer

    async def warm_up(self) -> list[Peer]:
        """Open the connections and send queries that do not count.

        Returns:
            The idle connections.

        Raises:
            OSError, RuntimeError: nothing listens, or it does not answer.
        """
        load = self._load
        peers = [await self._open() for _ in range(load.connections + load.idle)]
        await self._once_each(peers)
        if not self._book.answered:
            raise RuntimeError(f"no answer while warming up: {self._book.notes[:1]}")
        while self._number < load.warm_up and self._free:
            await self._once_each(self._free[: load.connections])
        idle = self._free[load.connections :]
        del self._free[load.connections :]
        self._book.forget()
        return idle

    async def _once_each(self, peers: list[Peer]) -> None:
        for start in range(0, len(peers), TOGETHER):
            for peer in peers[start : start + TOGETHER]:
                if peer in self._free:
                    self._free.remove(peer)
                self._send(peer, self._next(), time.perf_counter())
            await self._quiet()

    # --- queries ---

    def _next(self) -> int:
        self._number += 1
        return (self._number - 1) % len(self._load.requests)

    def _send(self, peer: Peer, request: int, due: float) -> None:
        peer.request, peer.due, peer.sent = request, due, time.perf_counter()
        self._in_flight.add(peer)
        peer.send(self._load.requests[request])

    def _ended(self, peer: Peer, end: End | None, reusable: bool) -> None:
        now = time.perf_counter()
        if end is not None:
            self._in_flight.discard(peer)
            self._book.add(peer, now, end)
        if not reusable:
            self._peers.discard(peer)
            with contextlib.suppress(ValueError):
                self._free.remove(peer)
            if end is not None and now < self._again_until:
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
            peer = HttpPeer(self._ended)
            peer.request, peer.due, peer.sent = request, due, time.perf_counter()
            self._book.add(peer, peer.sent, End(BROKEN, note=f"no connection: {error}"))
            return
        self._send(peer, request, due)

    async def _quiet(self) -> None:
        """Wait until nothing is in flight.

        A query that takes too long is lost, and its connection is given up.
        """
        patience_s = self._load.patience_s
        while self._in_flight or self._tasks:
            await asyncio.sleep(0.002)
            now = time.perf_counter()
            for peer in [one for one in self._in_flight if now - one.sent > patience_s]:
                self._in_flight.discard(peer)
                self._book.add(peer, float("nan"), End(LOST, note=f"nothing within {patience_s:g} s"))
                self._peers.discard(peer)
                peer.abandon()

    # --- loads ---

    async def _closed(self) -> None:
        self._again_until = time.perf_counter() + self._load.closed_s
        peers, self._free = self._free, []
        for peer in peers:
            self._send(peer, self._next(), time.perf_counter())
        await asyncio.sleep(self._load.closed_s)
        await self._quiet()

    async def _open_loop(self, began: float) -> None:
        load = self._load
        due = load.due or [(at, i % len(load.requests)) for i, at in enumerate(arrivals(load.phases, load.seed))]
        for number, (at, request) in enumerate(due):
            while (delay := began + at - time.perf_counter()) > 0:
                # Event loops count milliseconds.
                await asyncio.sleep(max(delay, 0.001))
            if not number % 64:
                # A load that is behind its times must still take in what comes back.
                await asyncio.sleep(0)
            if self._free:
                self._send(self._free.pop(), request, began + at)
            else:
                self._later(self._on_new(request, began + at))
        await self._quiet()

    async def carry_out(self, idle: list[Peer]) -> Summary:
        """The load, once it is warm."""
        load = self._load
        cpu_s, began, began_clock = time.process_time(), time.perf_counter(), time.monotonic()
        await (self._closed() if load.closed_s else self._open_loop(began))
        took_s = time.perf_counter() - began
        cpu_s = time.process_time() - cpu_s
        rows = self._book.rows(began)
        with open(load.file, "wb") as file:
            np.save(file, rows)
        self._book.forget()
        await self._once_each([peer for peer in idle if peer in self._peers])
        idle_lost = len(idle) - self._book.answered
        return Summary(len(rows), self._most, began_clock, took_s, cpu_s, idle_lost, self._book.notes)

    async def close(self) -> None:
        """Close all connections."""
        for peer in list(self._peers):
            await peer.close()


def arrivals(phases: list[Phase], seed: int) -> list[float]:
    """Return when queries are due, in seconds since the beginning.

    They are a Poisson process with each phase's rate.
    """
    draw, due, at, until = random.Random(seed), [], 0.0, 0.0
    for phase in phases:
        # Without memory: an arrival beyond a change of the rate may be drawn anew.
        at, until = until, until + phase.seconds
        while phase.rate > 0 and (at := at + draw.expovariate(phase.rate)) < until:
            due.append(at)
    return due


async def _serve(load: Load, line) -> Summary:
    run = _Run(load)
    try:
        idle = await run.warm_up()
        print("ready", flush=True)
        if (await asyncio.get_running_loop().run_in_executor(None, line)).strip() != "go":
            raise RuntimeError("expected 'go'")
        return await run.carry_out(idle)
    finally:
        await run.close()


def main() -> None:
    decode, encode = msgspec.json.Decoder(Load).decode, msgspec.json.Encoder().encode
    everywhere = os.sched_getaffinity(0)
    with contextlib.suppress(KeyboardInterrupt):
        while line := sys.stdin.readline():
            load = decode(line)
            os.sched_setaffinity(0, load.cores or everywhere)
            try:
                print(encode(uvloop.run(_serve(load, sys.stdin.readline))).decode(), flush=True)
            except (OSError, RuntimeError) as error:
                print(f"failed: {error}", flush=True)


if __name__ == "__main__":
    main()
