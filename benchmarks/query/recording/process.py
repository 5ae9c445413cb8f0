"""A load generator that keeps what became of each query: ``python -m benchmarks.query.recording.process``.

Beside :mod:`benchmarks.query.generator`, which is made to cost little and takes any trouble for the end, this one is
for servers under pressure: refusals, lost connections, late and wrong answers are what it is there to count. It is a
process of its own that takes one :class:`Load` after the other, a line of JSON on standard input each. Once connections
are there and warm it prints ``ready``; a line ``go`` starts the load; when all queries have an end it prints a line
with a :class:`Summary`, and the queries are in the file that the load names (:data:`.records.ROW`, ``numpy.save``).

Queries of an open load are due at times drawn beforehand (Poisson, at the rate of the phase), and count from then,
whether or not there was a connection free: one that finds none gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time

import msgspec
import numpy as np
import uvloop

from benchmarks.query.alarm import Alarm

from .book import Book, Peer, Query
from .http_peer import HttpPeer
from .records import BROKEN, LOST

#: queries before those that count, on each connection
WARM_UP = 1
#: seconds that a client of a closed loop waits after a refusal; trying again at once would only be refused again
REST_S = 0.05


class Phase(msgspec.Struct, frozen=True):
    """So many seconds at this rate (queries a second)."""

    seconds: float
    rate: float


class Load(msgspec.Struct):
    """``requests``: sent in turn: whole HTTP requests, or messages where ``grpc_key`` is given. ``answers``: by
    variant, the FP32 values that each request's answer must end in. ``phases``: of an open load. ``closed_s``: instead,
    so many seconds in which each of ``connections`` sends its next query once it has its answer. ``patience_s``: an
    answer that takes longer counts as lost. ``file``: where rows go. ``cores``: where the generator may run; empty:
    anywhere."""

    port: int
    requests: list[bytes]
    answers: dict[str, list[bytes]]
    connections: int
    file: str
    phases: list[Phase] = []
    closed_s: float = 0.0
    patience_s: float = 10.0
    seed: int = 0
    host: str = "127.0.0.1"
    grpc_key: str = ""
    cores: list[int] = []


class Summary(msgspec.Struct):
    """``connections``: the most at once. ``began``: ``time.monotonic()`` of the load's second 0. ``seconds``: until the
    last end. ``cpu_s``: the generator's CPU time meanwhile. ``notes``: some of what was not as it should be, in
    words."""

    queries: int
    connections: int
    began: float
    seconds: float
    cpu_s: float
    notes: list[str]


class _Run:
    """One load."""

    def __init__(self, load: Load):
        self._load = load
        self._book = Book(load.requests, load.answers)
        self._free: list[Peer] = []
        self._peers: set[Peer] = set()
        self._most = 0
        self._tasks: set[asyncio.Task] = set()
        self._under_way: dict[Query, Peer] = {}
        self._again_until = 0.0
        self._number = 0

    # --- connections ---

    async def _open(self) -> Peer:
        load = self._load
        if load.grpc_key:
            from .grpc_peer import GrpcPeer

            peer: Peer = GrpcPeer(self._ended, load.host, load.port, load.grpc_key)
        else:
            loop = asyncio.get_running_loop()
            _, peer = await loop.create_connection(lambda: HttpPeer(self._ended), load.host, load.port)
        self._peers.add(peer)
        self._most = max(self._most, len(self._peers))
        return peer

    async def warm_up(self) -> None:
        """Open the connections and send some queries that do not count.

        Raises:
            OSError, RuntimeError: nothing listens, or it does not answer.
        """
        for _ in range(self._load.connections):
            self._free.append(await self._open())
        for _ in range(WARM_UP):
            peers, self._free = self._free, []
            for start in range(0, len(peers), 16):
                for peer in peers[start : start + 16]:
                    self._send(peer, self._book.query(time.perf_counter()))
                await self._quiet()
        if not self._book.any_answered():
            raise RuntimeError(f"no answer while warming up: {self._book.notes[:1]}")
        self._book.forget()

    # --- queries ---

    def _send(self, peer: Peer, query: Query) -> None:
        query.sent = time.perf_counter()
        self._under_way[query] = peer
        peer.send(query, self._load.requests[query.request])

    def _ended(self, peer: Peer, query: Query | None, reusable: bool) -> None:
        """A query has its end on this connection, or, without one, the connection is no more."""
        now = time.perf_counter()
        if query is not None and self._under_way.pop(query, None) is not None:
            self._book.ended(query, now)
        if not reusable:
            self._peers.discard(peer)
            with contextlib.suppress(ValueError):
                self._free.remove(peer)
            if query is not None and now < self._again_until:
                self._later(self._on_new(self._book.query(now)))
        elif now < self._again_until:
            if query is None or query.right is not None:
                self._send(peer, self._book.query(now))
            else:
                self._later(self._rest(peer))
        else:
            self._free.append(peer)

    def _later(self, work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rest(self, peer: Peer) -> None:
        await asyncio.sleep(REST_S)
        if peer in self._peers:
            self._ended(peer, None, True)
        elif time.perf_counter() < self._again_until:
            await self._on_new(self._book.query(time.perf_counter()))

    async def _on_new(self, query: Query) -> None:
        try:
            peer = await self._open()
        except OSError as error:
            query.sent = time.perf_counter()
            query.fail(BROKEN, f"no connection: {error}")
            self._book.ended(query, query.sent)
            return
        self._send(peer, query)

    async def _quiet(self) -> None:
        """Wait until nothing is under way; what takes too long is lost, and its connection is given up."""
        patience_s = self._load.patience_s
        while self._under_way or self._tasks:
            await asyncio.sleep(0.002)
            now = time.perf_counter()
            for query, peer in [(q, p) for q, p in self._under_way.items() if now - q.sent > patience_s]:
                del self._under_way[query]
                query.fail(LOST, f"nothing within {patience_s:g} s")
                self._book.ended(query, float("nan"))
                self._peers.discard(peer)
                peer.abandon()

    # --- loads ---

    async def _closed(self) -> None:
        self._again_until = time.perf_counter() + self._load.closed_s
        peers, self._free = self._free, []
        for peer in peers:
            self._send(peer, self._book.query(time.perf_counter()))
        await asyncio.sleep(self._load.closed_s)
        await self._quiet()

    async def _phases(self, began: float) -> None:
        with Alarm(asyncio.get_running_loop()) as alarm:
            for due in arrivals(self._load.phases, self._load.seed):
                due += began
                if due > time.perf_counter():
                    await alarm.at(due)
                query = self._book.query(due)
                if self._free:
                    self._send(self._free.pop(), query)
                else:
                    self._later(self._on_new(query))
                self._number += 1
                if not self._number % 64:
                    # A load that is behind its times must still take in what comes back.
                    await asyncio.sleep(0)
        await self._quiet()

    async def carry_out(self) -> Summary:
        """The load, once it is warm."""
        load = self._load
        cpu_s, began, began_clock = time.process_time(), time.perf_counter(), time.monotonic()
        await (self._phases(began) if load.phases else self._closed())
        took_s = time.perf_counter() - began
        cpu_s = time.process_time() - cpu_s
        rows = self._book.rows(began)
        with open(load.file, "wb") as file:
            np.save(file, rows)
        return Summary(len(rows), self._most, began_clock, took_s, cpu_s, self._book.notes)

    async def close(self) -> None:
        """Close all connections."""
        for peer in list(self._peers):
            await peer.close()


def arrivals(phases: list[Phase], seed: int) -> np.ndarray:
    """Seconds since the beginning at which queries are due: a Poisson process with each phase's rate."""
    draw, due, at, until = random.Random(seed), [], 0.0, 0.0
    for phase in phases:
        # Without memory: what has not come when the rate changes may be drawn anew.
        at, until = until, until + phase.seconds
        while phase.rate > 0 and (at := at + draw.expovariate(phase.rate)) < until:
            due.append(at)
    return np.array(due)


async def _serve(load: Load, line) -> Summary:
    run = _Run(load)
    try:
        await run.warm_up()
        print("ready", flush=True)
        if (await asyncio.get_running_loop().run_in_executor(None, line)).strip() != "go":
            raise RuntimeError("expected 'go'")
        return await run.carry_out()
    finally:
        await run.close()


def main() -> None:
    decode, encode = msgspec.json.Decoder(Load).decode, msgspec.json.Encoder().encode
    with contextlib.suppress(KeyboardInterrupt):
        while line := sys.stdin.readline():
            load = decode(line)
            if load.cores:
                os.sched_setaffinity(0, load.cores)
            try:
                print(encode(uvloop.run(_serve(load, sys.stdin.readline))).decode(), flush=True)
            except (OSError, RuntimeError) as error:
                print(f"failed: {error}", flush=True)


if __name__ == "__main__":
    main()
