"""The clients' process: an open loop that records every query.

    python -m benchmarks.faults.clients

It takes a :class:`Work` as a line of JSON on standard input, prints ``ready``, sends until the next line (or the end of
its input), waits for what is under way, and prints ``done``. The record is written as it happens.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import defaultdict
from typing import BinaryIO

import msgspec
import numpy as np
import uvloop

from .history import Ended, Sent, line
from .peers import GrpcChannel, HttpConnection, Reply, grpc_request, http_request

#: outputs of other batch sizes round differently
TOLERANCE = 1e-3
#: channels of a gRPC stream
CHANNELS = 3


class Stream(msgspec.Struct):
    """Poisson arrivals of one application over one protocol.

    Attributes:
        protocol: ``http`` or ``grpc``.
        rate: queries/s.
    """

    application: str
    protocol: str
    rate: float


class Work(msgspec.Struct):
    """The clients' load.

    Attributes:
        rows: inputs, sent in turn; ``columns``: the shape of each.
        outputs: by variant, the output of each row.
        patience_s: after which a query without an answer ends unknown.
    """

    file: str
    http: int
    grpc: str
    key: str
    streams: list[Stream]
    columns: list[int]
    rows: list[bytes]
    outputs: dict[str, list[bytes]]
    patience_s: float = 20.0
    seed: int = 0


class _Clients:
    def __init__(self, work: Work, file: BinaryIO):
        self._work = work
        self._file = file
        self._free: list[HttpConnection] = []
        self._channels: dict[str, list[GrpcChannel]] = defaultdict(list)
        self._tasks: set[asyncio.Task] = set()
        self._over = asyncio.Event()

    async def run(self, line_in) -> None:
        work = self._work
        for stream in work.streams:
            if stream.protocol == "grpc":
                self._channels[stream.application] = [GrpcChannel(work.grpc, work.key) for _ in range(CHANNELS)]
        print("ready", flush=True)
        streams = [asyncio.create_task(self._stream(number, one)) for number, one in enumerate(work.streams)]
        flushing = asyncio.create_task(self._flush())
        await asyncio.get_running_loop().run_in_executor(None, line_in)
        self._over.set()
        await asyncio.gather(*streams)
        while self._tasks:
            await asyncio.wait(self._tasks)
        flushing.cancel()
        for connection in self._free:
            connection.close()
        for channel in (one for of in self._channels.values() for one in of):
            await channel.close()

    async def _flush(self) -> None:
        while True:
            self._file.flush()
            await asyncio.sleep(0.1)

    async def _stream(self, number: int, stream: Stream) -> None:
        draw, due = random.Random(f"{self._work.seed} {number}"), time.monotonic()
        count = 0
        while not self._over.is_set():
            due += draw.expovariate(stream.rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            id = f"{stream.application}-{stream.protocol}-{count}"
            task = asyncio.create_task(self._one(stream, id, count))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            count += 1

    async def _one(self, stream: Stream, id: str, count: int) -> None:
        work = self._work
        place = count % len(work.rows)
        self._file.write(line(Sent(id, stream.application, stream.protocol, time.monotonic())))
        ask = self._http if stream.protocol == "http" else self._grpc
        try:
            reply = await asyncio.wait_for(ask(stream, id, count, work.rows[place]), work.patience_s)
        except TimeoutError:
            reply = Reply("unknown", note=f"nothing within {work.patience_s:g} s")
        self._record(id, reply, place)

    def _record(self, id: str, reply: Reply, place: int | None) -> None:
        right = reply.end != "ok" or place is None or self._is_right(reply.variant, place, reply.output)
        if not right and reply.variant not in self._work.outputs:
            reply = reply._replace(note=f"was answered by {reply.variant!r}, whose outputs are not known")
        self._file.write(line(ended(id, reply, right)))

    def _is_right(self, variant: str, place: int, output: bytes) -> bool:
        known = self._work.outputs.get(variant)
        return known is not None and same_output(output, known[place])

    async def _http(self, stream: Stream, id: str, count: int, row: bytes) -> Reply:
        work = self._work
        while self._free and not self._free[-1].usable:
            self._free.pop()
        try:
            connection = self._free.pop() if self._free else await HttpConnection.open(work.http, self._extra)
        except OSError as error:
            return Reply("fail", note=f"not sent: {error}")
        try:
            reply = await connection.ask(http_request(stream.application, work.key, id, row, work.columns))
        except asyncio.CancelledError:
            connection.close()
            raise
        if connection.usable:
            self._free.append(connection)
        return reply

    async def _grpc(self, stream: Stream, id: str, count: int, row: bytes) -> Reply:
        channel = self._channels[stream.application][count % CHANNELS]
        return await channel.ask(grpc_request(stream.application, id, row, self._work.columns))

    def _extra(self, reply: Reply) -> None:
        """Record a response that nobody waits for.

        It is recorded under the id that it carries, which then has two ends.
        """
        self._record(reply.answer_id or "nobody", reply, None)


def ended(id: str, reply: Reply, right: bool) -> Ended:
    """Return the end of a query, as of now.

    Args:
        right: its output is that of the variant for its input.
    """
    return Ended(
        id,
        time.monotonic(),
        reply.end,
        reply.status,
        reply.answer_id,
        reply.variant,
        reply.device,
        reply.accuracy,
        right,
        reply.note,
        reply.rows,
        reply.inside_ms,
    )


def same_output(output: bytes, known: bytes) -> bool:
    """Whether FP32 outputs are equal except for the rounding of other batch sizes."""
    if len(output) != len(known):
        return False
    return output == known or np.allclose(
        np.frombuffer(output, "<f4"), np.frombuffer(known, "<f4"), TOLERANCE, TOLERANCE
    )


def main() -> None:
    work = msgspec.json.decode(sys.stdin.readline(), type=Work)
    with open(work.file, "wb") as file:
        uvloop.run(_Clients(work, file).run(sys.stdin.readline))
    print("done", flush=True)


if __name__ == "__main__":
    main()
