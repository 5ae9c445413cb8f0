"""The load generator (:mod:`appliance.load`) in a process of its own, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import uvloop

from appliance.load.records import GRPC, HTTP, Records
from appliance.load.sender import Load, Sender, arrivals

from .grpc_peer import GrpcPeer
from .spawned import Spawned


class LoadError(RuntimeError):
    """The load generator failed, or queries did: there is no figure to report."""


class Summary(NamedTuple):
    """A load that is over.

    Attributes:
        connections: the most at once.
        began: ``time.monotonic()`` of the load's second 0.
        seconds: until the last end.
        cpu_s: CPU time of the generator.
        idle_lost: idle connections that were not served at the end.
        notes: some error texts.
    """

    connections: int
    began: float
    seconds: float
    cpu_s: float
    idle_lost: int
    notes: list[str]


class Generator:
    """The process; a context manager."""

    def __enter__(self) -> Generator:
        self._process = Spawned(_serve)
        return self

    def __exit__(self, *_error) -> None:
        self._process.close()

    def run(self, load: Load, slo_s: float, when_warm: Callable[[], None] = lambda: None) -> tuple[Records, Summary]:
        """Carry out a load; ``when_warm`` is called just before it begins.

        ``slo_s``: from when a query is due to its answer. Raises LoadError.
        """
        self._process.ask(load)
        when_warm()
        summary, rows = self._process.ask("go")
        return Records(rows, GRPC if load.grpc_key else HTTP, slo_s), summary


def _serve(pipe: Connection) -> None:
    everywhere = os.sched_getaffinity(0)
    while True:
        try:
            load = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        os.sched_setaffinity(0, load.cores or everywhere)
        try:
            pipe.send(uvloop.run(_carry_out(load, pipe)))
        except (OSError, RuntimeError) as error:
            pipe.send(LoadError(f"the load generator failed: {error}"))


async def _carry_out(load: Load, pipe: Connection) -> tuple[Summary, np.ndarray]:
    sender = Sender(load, GrpcPeer)
    try:
        idle = await sender.warm_up()
        pipe.send(None)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        book, cpu_s, began, began_clock = sender.book, time.process_time(), time.perf_counter(), time.monotonic()
        if load.closed_s:
            await sender.closed()
        else:
            poisson = ((at, i % len(load.requests)) for i, at in enumerate(arrivals(load.phases, load.seed)))
            await sender.open(load.due or poisson, began)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        rows = book.rows(began)
        book.forget()
        await sender.once_each(idle)
        lost = len(idle) - book.answered
        return Summary(sender.most_peers, began_clock, took_s, cpu_s, lost, book.notes), rows
    finally:
        await sender.close()
