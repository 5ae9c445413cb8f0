"""The clients, in a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import uvloop

from appliance.load.peers import End, HttpPeer, Peer
from appliance.load.records import BROKEN, LOST, UNSENT
from appliance.load.requests import v2_request
from benchmarks.grpc_peer import GrpcPeer, v2_grpc_request
from benchmarks.spawned import Spawned

from .history import Ended, Event, Sent, line

#: outputs of other batch sizes round differently
TOLERANCE = 1e-3


class Stream(msgspec.Struct):
    """Poisson arrivals of one application over ``http`` or ``grpc``, at ``rate`` queries/s.

    Attributes:
        rows: inputs, sent in turn; ``columns``: the shape of each, ``input``: the tensor's name.
        outputs: by variant, the output of each row.
    """

    application: str
    protocol: str
    rate: float
    columns: list[int]
    rows: list[bytes]
    outputs: dict[str, list[bytes]]
    input: str = "x"


class Work(msgspec.Struct):
    """The clients' load.

    Attributes:
        hosts: addresses of the gateways; ``http``, ``grpc``: their ports.
        patience_s: after which an attempt without an answer ends unknown.
        connect_s: seconds that a client waits for a connection: what a box that was lost without a word costs it.
    """

    file: str
    http: int
    key: str
    streams: list[Stream]
    hosts: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1"])
    grpc: int = 0
    patience_s: float = 20.0
    connect_s: float = 20.0
    seed: int = 0


class ClientProcess:
    """The process: an open loop that records every query, as it happens.

    Addresses take turns; an attempt that is not answered is repeated once at the next one.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self.file = Path(work.file)

    def __enter__(self) -> ClientProcess:
        return self.start()

    def __exit__(self, *_error) -> None:
        self.stop()

    def start(self) -> ClientProcess:
        self._process: Spawned | None = Spawned(_serve, self._work)
        self._process.heard()
        return self

    def stop(self) -> None:
        """End the load, and wait until all queries, which may be sent twice, have ended."""
        if self._process is not None:
            self._process.close(2 * self._work.patience_s + 60)
            self._process = None


class _Clients:
    def __init__(self, work: Work, file: BinaryIO):
        self._work = work
        self._file = file
        #: connections without a query by (protocol, address), and each one's place among them
        self._free: dict[tuple[str, int], list[Peer]] = defaultdict(list)
        self._places: dict[Peer, tuple[str, int]] = {}
        self._waiting: dict[Peer, asyncio.Future[End]] = {}
        self._tasks: set[asyncio.Task] = set()
        self._over = asyncio.Event()

    async def run(self, pipe: Connection) -> None:
        pipe.send("ready")
        streams = [asyncio.create_task(self._stream(number, one)) for number, one in enumerate(self._work.streams)]
        with contextlib.suppress(EOFError):
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        self._over.set()
        await asyncio.gather(*streams)
        while self._tasks:
            await asyncio.wait(self._tasks)
        for peer in list(self._places):
            await peer.close()

    async def _stream(self, number: int, stream: Stream) -> None:
        draw, due = random.Random(f"{self._work.seed} {number}"), time.monotonic()
        count = 0
        while not self._over.is_set():
            due += draw.expovariate(stream.rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._query(stream, count))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            count += 1

    async def _query(self, stream: Stream, count: int) -> None:
        hosts = len(self._work.hosts)
        for attempt in range(min(hosts, 2)):
            if await self._attempt(stream, count, (count + attempt) % hosts):
                return

    async def _attempt(self, stream: Stream, count: int, host: int) -> bool:
        """Send a query to an address; whether it was answered."""
        id, place = f"{stream.application}-{stream.protocol}-{count}@{host}", count % len(stream.rows)
        self._record(Sent(id, stream.application, stream.protocol, time.monotonic()))
        end = await self._ask(stream, id, place, host)
        ended = _ended(id, end)
        if ended.end == "ok":
            known = stream.outputs.get(end.variant)
            right = known is not None and same_output(end.output, known[place])
            note = "" if known else f"was answered by {end.variant!r}, whose outputs are not known"
            ended = msgspec.structs.replace(ended, right=right, note=note)
        self._record(ended)
        return ended.end == "ok"

    async def _ask(self, stream: Stream, id: str, place: int, host: int) -> End:
        row = np.frombuffer(stream.rows[place], "<f4").reshape(1, *stream.columns)
        if stream.protocol == "grpc":
            request = v2_grpc_request(stream.application, row, stream.input, id)
        else:
            request = v2_request(stream.application, self._work.key, row, stream.input, id)
        free = self._free[stream.protocol, host]
        try:
            peer = free.pop() if free else await self._open(stream.protocol, host)
        except (OSError, TimeoutError) as error:
            return End(UNSENT, note=f"not sent: {error!r}")
        self._waiting[peer] = waiting = asyncio.get_running_loop().create_future()
        peer.send(request)
        try:
            return await asyncio.wait_for(waiting, self._work.patience_s)
        except TimeoutError:
            self._places.pop(peer, None)
            peer.abandon()
            return End(LOST, note=f"nothing within {self._work.patience_s:g} s")

    async def _open(self, protocol: str, place: int) -> Peer:
        work, loop = self._work, asyncio.get_running_loop()
        host = work.hosts[place]
        if protocol == "grpc":
            peer: Peer = GrpcPeer(self._on_end, f"{host}:{work.grpc}", work.key)
        else:
            async with asyncio.timeout(work.connect_s):
                _, peer = await loop.create_connection(lambda: HttpPeer(self._on_end), host, work.http)
        self._places[peer] = protocol, place
        return peer

    def _on_end(self, peer: Peer, end: End | None, reusable: bool) -> None:
        waiting, place = self._waiting.pop(peer, None), self._places.get(peer)
        if waiting is not None and not waiting.done():
            waiting.set_result(end)
        elif end is not None:
            # An answer that nobody waits for is the second end of a query.
            self._record(_ended("nobody", end))
        if reusable and place is not None:
            self._free[place].append(peer)
        elif place is not None:
            del self._places[peer]
            with contextlib.suppress(ValueError):
                self._free[place].remove(peer)

    def _record(self, event: Event) -> None:
        self._file.write(line(event))
        self._file.flush()


def _ended(id: str, end: End) -> Ended:
    refused = "Connection refused" in end.note
    kind = "ok" if end.output is not None else "unknown" if end.status in (BROKEN, LOST) and not refused else "fail"
    inside_ms = end.queue_ms + end.model_ms
    told = end.id, end.variant, end.device, end.accuracy
    return Ended(id, time.monotonic(), kind, end.status, *told, True, end.note[:300], end.batch, inside_ms)


def same_output(output: bytes, known: bytes) -> bool:
    """Whether FP32 outputs are equal except for the rounding of other batch sizes."""
    if len(output) != len(known):
        return False
    return output == known or np.allclose(
        np.frombuffer(output, "<f4"), np.frombuffer(known, "<f4"), TOLERANCE, TOLERANCE
    )


def _serve(pipe: Connection, work: Work) -> None:
    with open(work.file, "wb") as file:
        uvloop.run(_Clients(work, file).run(pipe))
