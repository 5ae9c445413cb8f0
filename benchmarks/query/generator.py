"""The load generator's process: ``python -m benchmarks.query.generator`` takes one :class:`Load` after the other.

It shares the machine with the servers, so it is as cheap as Python can be: requests are made beforehand, one protocol
object a connection, no task a query, and answers are compared as bytes. Each load is a line of JSON on standard input.
Connections are opened and warmed up, ``ready`` is printed, and the load runs once a line ``go`` came. Then nothing
is under way any more and ``measured`` is printed; after another ``go`` connections are looked after, and a line with
the load's :class:`Outcome` is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import sys
import time
from array import array

import msgspec
import numpy as np
import uvloop

from .alarm import Alarm

#: a query whose answer takes longer counts as lost
PATIENCE_S = 30.0
TOLERANCE = 1e-3


class Load(msgspec.Struct):
    """``requests``: whole HTTP requests, sent in turn, each with the bytes that its answer must end in (FP32, within
    :data:`TOLERANCE`).

    ``mode``: ``closed``: each connection sends its next query once it has its answer, after ``pause_s``; ``open``:
    queries are sent at ``rate`` a second, with exponential gaps, whether or not earlier ones were answered, and their
    time counts from when they were due. ``idle``: so many more connections, which send one query at the beginning and
    one at the end. ``grpc_key``: the requests are ``ModelInferRequest`` messages, sent over gRPC with this API key.
    """

    port: int
    requests: list[bytes]
    answers: list[bytes]
    mode: str
    connections: int
    seconds: float
    slo_s: float
    warm_up: int = 200
    pause_s: float = 0.0
    rate: float = 0.0
    idle: int = 0
    seed: int = 0
    host: str = "127.0.0.1"
    grpc_key: str = ""


class Outcome(msgspec.Struct):
    """``batches``: how many the queries were answered in (those whose answers tell). Times in seconds; ``lateness_s``:
    median of how much later than due queries were sent. ``errors``: the first few."""

    sent: int
    answered: int
    late: int
    refused: int
    batches: float
    seconds: float
    p50_s: float
    p99_s: float
    lateness_s: float
    connections: int
    errors: list[str]


class _Connection(asyncio.Protocol):
    """One keep-alive HTTP connection with at most one query under way."""

    __slots__ = ("_buffer", "due", "expected", "run", "transport")

    def __init__(self, run: Run):
        self.run = run
        self.transport: asyncio.Transport | None = None
        self.due = 0.0
        self.expected = -1
        self._buffer = b""

    def connection_made(self, transport) -> None:
        self.transport = transport

    def send(self, number: int, due: float) -> None:
        run = self.run
        self.expected = number % len(run.load.requests)
        self.due = due
        run.sent += 1
        run.under_way += 1
        self.transport.write(run.load.requests[self.expected])

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            return
        at = data.find(b"ontent-length: ", 0, end)
        if at < 0:
            at = data.find(b"ontent-Length: ", 0, end)
        size = int(data[at + 15 : data.find(b"\r", at)]) if at >= 0 else 0
        if len(data) < end + 4 + size:
            self._buffer = data
            return
        self._buffer = b""
        self.run.answered(self, data, end + 4)

    def close(self) -> None:
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.run.over:
            self.run.stop()
            self.run.failed(self, f"connection lost: {error}")


class Run:
    """One load on its connections."""

    def __init__(self, load: Load):
        self.load = load
        self.sent = self.under_way = self.late = self.refused = self.right = 0
        self.batches = 0.0
        self.latencies = array("d")
        self.lateness = array("d")
        self.errors: list[str] = []
        self.over = False
        self._free: list[_Connection] = []
        self._until = -math.inf
        self._quiet = asyncio.Event()
        self._known: list[set[bytes]] = [{answer} for answer in load.answers]
        self._loop = asyncio.get_running_loop()
        self.connections: list[_Connection] = []

    async def connect(self, count: int) -> None:
        load = self.load
        for start in range(0, count, 100):
            some = range(min(100, count - start))
            if load.grpc_key:
                from .grpc_client import GrpcConnection

                new = [GrpcConnection(self) for _ in some]
                self.connections += new
                self._free += new
                continue
            made = [self._loop.create_connection(lambda: _Connection(self), load.host, load.port) for _ in some]
            new = [protocol for _, protocol in await asyncio.gather(*made)]
            self.connections += new
            self._free += new

    # --- answers ---

    def answered(self, connection: _Connection, data: bytes, body: int) -> None:
        now = time.perf_counter()
        if connection.expected < 0:
            self.errors.append(f"an answer to nothing: {data[:200]!r}")
            return
        if data[9:12] != b"200":
            if data[9:12] == b"503":
                self.refused += 1
            self.failed(connection, data[:400].decode("latin-1"))
            return
        self.check(connection, data, body, now - connection.due)
        self.land(connection)

    def check(self, connection: _Connection, data: bytes, body: int, took_s: float) -> None:
        """Count an answer that begins at ``body``, if it ends in what it should end in."""
        known = self._known[connection.expected]
        size = len(self.load.answers[connection.expected])
        told = data[-size:]
        if told not in known:
            # Other batch sizes round differently; each such answer is looked at once.
            wanted = np.frombuffer(self.load.answers[connection.expected], "<f4")
            if len(data) - body < size or not np.allclose(np.frombuffer(told, "<f4"), wanted, TOLERANCE, TOLERANCE):
                self.stop()
                self.errors.append(f"a wrong answer: {data[-200:]!r}")
                return
            known.add(told)
        self.right += 1
        self.latencies.append(took_s)
        if took_s > self.load.slo_s:
            self.late += 1
        at = data.find(b'"batch_size":', body)
        if at >= 0:
            end = at + 14
            while 48 <= data[end] <= 57:
                end += 1
            self.batches += 1 / int(data[at + 13 : end])

    def failed(self, connection: _Connection, why: str) -> None:
        """A query has no result; the first few reasons are kept."""
        if len(self.errors) < 5:
            self.errors.append(why)
        if connection.expected >= 0:
            self.land(connection)

    def stop(self) -> None:
        """Send nothing more: what is measured is of no use any more."""
        self._until = -math.inf

    def land(self, connection: _Connection) -> None:
        """A query is done with; its connection sends the next one where the load wants that."""
        connection.expected = -1
        self.under_way -= 1
        if self._until > time.perf_counter() and self.load.mode == "closed":
            if self.load.pause_s:
                self._loop.call_later(self.load.pause_s, self._again, connection)
            else:
                connection.send(self.sent, time.perf_counter())
            return
        self._free.append(connection)
        if not self.under_way:
            self._quiet.set()

    def _again(self, connection: _Connection) -> None:
        if self._until > time.perf_counter():
            connection.send(self.sent, time.perf_counter())
        else:
            self._free.append(connection)

    # --- loads ---

    async def quiet(self) -> None:
        while self.under_way:
            self._quiet.clear()
            async with asyncio.timeout(PATIENCE_S):
                await self._quiet.wait()

    async def once_each(self, connections: list[_Connection]) -> None:
        """One query on each of these, a hundred at a time."""
        for start in range(0, len(connections), 100):
            for connection in connections[start : start + 100]:
                self._free.remove(connection)
                connection.send(self.sent, time.perf_counter())
            await self.quiet()

    async def warm_up(self) -> None:
        for connection in self._take_all():
            connection.send(self.sent, time.perf_counter())
        await self.quiet()
        while self.sent < self.load.warm_up:
            for connection in self._take_all():
                connection.send(self.sent, time.perf_counter())
            await self.quiet()

    def _take_all(self) -> list[_Connection]:
        taken, self._free = self._free, []
        return taken

    def forget(self) -> None:
        """What is counted begins now."""
        self.sent = self.late = self.refused = self.right = 0
        self.batches = 0.0
        self.latencies, self.lateness = array("d"), array("d")

    async def closed(self) -> None:
        self._until = time.perf_counter() + self.load.seconds
        for connection in self._take_all():
            connection.send(self.sent, time.perf_counter())
        if self.load.pause_s:
            await asyncio.sleep(self.load.seconds)
        await self.quiet()

    async def open(self) -> None:
        load, draw = self.load, random.Random(self.load.seed)
        started = time.perf_counter()
        with Alarm(self._loop) as alarm:
            due = started + draw.expovariate(load.rate)
            self._until = started + load.seconds
            while due < self._until:
                if due > time.perf_counter():
                    await alarm.at(due)
                if not self._free:
                    # Nothing is held back: a query that finds no connection free gets a new one.
                    await self.connect(8)
                self.lateness.append(time.perf_counter() - due)
                self._free.pop().send(self.sent, due)
                due += draw.expovariate(load.rate)
        await self.quiet()

    def outcome(self, seconds: float) -> Outcome:
        ordered = sorted(self.latencies)
        lateness = sorted(self.lateness)
        return Outcome(
            sent=self.sent,
            answered=self.right,
            late=self.late,
            refused=self.refused,
            batches=self.batches,
            seconds=seconds,
            p50_s=_quantile(ordered, 0.5),
            p99_s=_quantile(ordered, 0.99),
            lateness_s=_quantile(lateness, 0.5),
            connections=len(self.connections),
            errors=self.errors[:5],
        )


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[int(q * (len(ordered) - 1) + 0.5)] if ordered else 0.0


async def _carry_out(load: Load) -> Outcome:
    run = Run(load)
    loop = asyncio.get_running_loop()
    try:
        await run.connect(load.connections)
        await run.warm_up()
        active = run._take_all()
        await run.connect(load.idle)
        idle = list(run._free)
        await run.once_each(idle)
        run._free = active
        print("ready", flush=True)
        if (await loop.run_in_executor(None, sys.stdin.readline)).strip() != "go":
            raise RuntimeError("expected 'go'")
        run.forget()
        began = time.perf_counter()
        await (run.open() if load.mode == "open" else run.closed())
        outcome = run.outcome(time.perf_counter() - began)
        print("measured", flush=True)
        if (await loop.run_in_executor(None, sys.stdin.readline)).strip() != "go":
            raise RuntimeError("expected 'go'")
        if idle:
            before = run.right
            run._free = idle
            await run.once_each(list(idle))
            if run.right - before != len(idle):
                outcome.errors.append(f"of {len(idle)} idle connections {run.right - before} were still served")
        return outcome
    except TimeoutError:
        outcome = run.outcome(PATIENCE_S)
        outcome.errors.append(f"{run.under_way} queries without an answer after {PATIENCE_S:g} s")
        return outcome
    finally:
        run.over = True
        for connection in run.connections:
            connection.close()


def main() -> None:
    decode, encode = msgspec.json.Decoder(Load).decode, msgspec.json.Encoder().encode
    with contextlib.suppress(KeyboardInterrupt):
        while line := sys.stdin.readline():
            print(encode(uvloop.run(_carry_out(decode(line)))).decode(), flush=True)


if __name__ == "__main__":
    main()
