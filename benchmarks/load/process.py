"""The load generator's process: ``python -m benchmarks.load.process``.

It takes one :class:`~appliance.load.sender.Load` after the other, a line of JSON on standard input each. Once
connections are open and warm it prints ``ready``; a line ``go`` starts the load; when all queries have ended it prints
a :class:`Summary`, and the rows are in the load's file (:data:`~appliance.load.records.ROW`, ``numpy.save``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time

import msgspec
import numpy as np
import uvloop

from appliance.load.peers import Peer
from appliance.load.sender import Load, Sender, arrivals

from .grpc_peer import GrpcPeer


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


async def _carry_out(sender: Sender, idle: list[Peer]) -> Summary:
    load, book = sender.load, sender.book
    cpu_s, began, began_clock = time.process_time(), time.perf_counter(), time.monotonic()
    if load.closed_s:
        await sender.closed()
    else:
        poisson = ((at, i % len(load.requests)) for i, at in enumerate(arrivals(load.phases, load.seed)))
        await sender.open(load.due or poisson, began)
    took_s = time.perf_counter() - began
    cpu_s = time.process_time() - cpu_s
    rows = book.rows(began)
    with open(load.file, "wb") as file:
        np.save(file, rows)
    book.forget()
    await sender.once_each(idle)
    return Summary(len(rows), sender.most_peers, began_clock, took_s, cpu_s, len(idle) - book.answered, book.notes)


async def _serve(load: Load, line) -> Summary:
    sender = Sender(load, GrpcPeer)
    try:
        idle = await sender.warm_up()
        print("ready", flush=True)
        if (await asyncio.get_running_loop().run_in_executor(None, line)).strip() != "go":
            raise RuntimeError("expected 'go'")
        return await _carry_out(sender, idle)
    finally:
        await sender.close()


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
