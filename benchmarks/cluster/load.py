"""A load on several gateways, as clients with several addresses send it.

    python -m benchmarks.cluster.load

It takes a :class:`Work` as a line of JSON on standard input, prints ``ready``, sends until its input ends, waits for
what is under way, and records every attempt as the clients of the fault matrix do. Queries go to the addresses in turn;
an attempt that is not answered is repeated once at the next address.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
import onnxruntime
import uvloop

from appliance.demo.manifest import DemoApplication
from benchmarks.faults.checker import Query, queries_of
from benchmarks.faults.clients import ended, same_output
from benchmarks.faults.history import Event, Sent, line
from benchmarks.faults.peers import HttpConnection, Reply, http_request

INPUTS = 8
#: Seconds that a client waits for a connection: what a box that was lost without a word costs it.
CONNECT_S = 1.0


class Stream(msgspec.Struct):
    """Poisson arrivals of one application.

    Attributes:
        rate: queries/s.
        rows: inputs, sent in turn.
        outputs: by variant, of each row.
    """

    application: str
    rate: float
    input: str
    columns: list[int]
    rows: list[bytes]
    outputs: dict[str, list[bytes]]


class Work(msgspec.Struct):
    """The clients' orders.

    Attributes:
        hosts: addresses of the gateways.
        patience_s: after which an attempt without an answer ends unknown.
    """

    file: str
    hosts: list[str]
    port: int
    key: str
    streams: list[Stream]
    patience_s: float = 5.0
    seed: int = 0


def stream(application: DemoApplication, rate: float) -> Stream:
    """The stream of an application, with what its variants answer."""
    spec = application.signature["inputs"][0]
    rows = [np.asarray(row, np.float32)[np.newaxis] for row in application.samples()[spec["name"]][:INPUTS]]
    outputs = {}
    for variant in application.variants:
        session = onnxruntime.InferenceSession(str(variant.path), providers=["CPUExecutionProvider"])
        outputs[variant.name] = [session.run(None, {spec["name"]: row})[0].tobytes() for row in rows]
    columns = list(rows[0].shape[1:])
    return Stream(application.name, rate, spec["name"], columns, [row.tobytes() for row in rows], outputs)


class Asked(NamedTuple):
    """A query with its attempts.

    Attributes:
        place: of the first address.
        again: the second attempt; None where it was not repeated.
    """

    place: int
    first: Query
    again: Query | None

    @property
    def last(self) -> Query:
        return self.again or self.first

    @property
    def took_s(self) -> float:
        return self.last.end.at - self.first.sent.at


def asked(events: Iterable[Event]) -> list[Asked]:
    """The queries of a history, in the order in which they were sent."""
    attempts: dict[str, list[Query]] = {}
    for query in queries_of(events):
        attempts.setdefault(query.sent.id.rpartition("@")[0], []).append(query)
    found = []
    for some in attempts.values():
        first, again = some[0], some[1] if len(some) > 1 else None
        found.append(Asked(int(first.sent.id.rpartition("@")[2]), first, again))
    return found


class _Clients:
    def __init__(self, work: Work, file: BinaryIO) -> None:
        self._work, self._file = work, file
        self._free: dict[int, list[HttpConnection]] = defaultdict(list)
        self._tasks: set[asyncio.Task] = set()
        self._over = asyncio.Event()

    async def run(self) -> None:
        print("ready", flush=True)
        streams = [asyncio.create_task(self._send(one)) for one in self._work.streams]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        self._over.set()
        await asyncio.gather(*streams)
        while self._tasks:
            await asyncio.wait(self._tasks)
        for connection in (one for free in self._free.values() for one in free):
            connection.close()

    async def _send(self, stream: Stream) -> None:
        draw, due, count = random.Random(f"{self._work.seed} {stream.application}"), time.monotonic(), 0
        while not self._over.is_set():
            due += draw.expovariate(stream.rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._query(stream, count))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            count += 1

    async def _query(self, stream: Stream, count: int) -> None:
        place = count % len(self._work.hosts)
        if not await self._attempt(stream, count, place):
            await self._attempt(stream, count, (place + 1) % len(self._work.hosts))

    async def _attempt(self, stream: Stream, count: int, place: int) -> bool:
        """Send a query to an address; whether it was answered."""
        id, row = f"{stream.application}-{count}@{place}", count % len(stream.rows)
        self._record(Sent(id, stream.application, "http", time.monotonic()))
        request = http_request(stream.application, self._work.key, id, stream.rows[row], stream.columns, stream.input)
        try:
            reply = await asyncio.wait_for(self._ask(request, place), self._work.patience_s)
        except TimeoutError:
            reply = Reply("unknown", note=f"nothing within {self._work.patience_s:g} s")
        self._record(ended(id, reply, _is_right(reply, stream, row)))
        return reply.end == "ok"

    async def _ask(self, request: bytes, place: int) -> Reply:
        free = self._free[place]
        while free and not free[-1].usable:
            free.pop()
        try:
            connection = free.pop() if free else await self._connect(place)
        except (OSError, TimeoutError) as error:
            return Reply("fail", note=f"not sent: {error!r}")
        try:
            reply = await connection.ask(request)
        except asyncio.CancelledError:
            connection.close()
            raise
        if connection.usable:
            free.append(connection)
        return reply

    async def _connect(self, place: int) -> HttpConnection:
        work = self._work
        return await asyncio.wait_for(HttpConnection.open(work.port, self._extra, work.hosts[place]), CONNECT_S)

    def _extra(self, reply: Reply) -> None:
        """Record a response that nobody waits for.

        It is the second end of the query whose id it carries.
        """
        self._record(ended(reply.answer_id or "nobody", reply, True))

    def _record(self, event: Event) -> None:
        self._file.write(line(event))
        self._file.flush()


def _is_right(reply: Reply, stream: Stream, row: int) -> bool:
    known = stream.outputs.get(reply.variant)
    return reply.end != "ok" or (known is not None and same_output(reply.output, known[row]))


def main() -> None:
    """Send until stopped."""
    work = msgspec.json.decode(sys.stdin.readline(), type=Work)
    with open(work.file, "wb") as file:
        uvloop.run(_Clients(work, file).run())


if __name__ == "__main__":
    main()
