"""An open-loop load: it sends queries when due and waits for no earlier answers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
from tritonclient.grpc import InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from . import v2
from .counts import QueryCounts
from .manifest import DemoApplication
from .rates import RateProfile, arrivals

#: connections, which several gateways share out among themselves
CONNECTIONS = 8
#: Channels of one process share a connection unless configured otherwise, and wait for up to two minutes before they
#: connect again to a gateway that restarted.
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000)]
#: statuses of overload
REFUSED = frozenset((str(grpc.StatusCode.RESOURCE_EXHAUSTED), str(grpc.StatusCode.DEADLINE_EXCEEDED)))


class Clients:
    """Connections to the gateway's V2 gRPC that take turns; a context manager.

    Args:
        address: HOST:PORT.
        limit: queries in flight at most; :class:`Driver` keeps to it.
        timeout_s: an answer that takes longer counts as none.
        authorities: PEM file of whom to trust; None: without TLS.
    """

    def __init__(self, address: str, limit: int = 256, timeout_s: float = 5.0, authorities: Path | None = None):
        self.limit = limit
        self.timeout_s = timeout_s
        trusted = str(authorities) if authorities is not None else None
        self._all = [
            InferenceServerClient(address, ssl=trusted is not None, root_certificates=trusted, channel_args=CHANNEL)
            for _ in range(CONNECTIONS)
        ]
        self._turns = itertools.cycle(self._all)

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *_error) -> None:
        for client in self._all:
            await client.close()

    async def infer(self, name: str, query: v2.InferInput, key: str) -> InferResult:
        """Send a query of an application.

        Raises:
            InferenceServerException: it has no result; ``status()`` is gRPC's.
            TimeoutError: no answer within ``timeout_s``.
        """
        async with asyncio.timeout(self.timeout_s):
            return await next(self._turns).infer(name, [query], headers={"authorization": f"Bearer {key}"})

    async def ready(self) -> bool:
        """Whether every planned application has a warm variant."""
        try:
            return await self._all[0].is_server_ready(client_timeout=self.timeout_s)
        except InferenceServerException:
            return False


@dataclass(frozen=True)
class QueryStream:
    """One application's queries.

    Attributes:
        profile: their rate over time.
        seed: their times and rows are drawn from it.
    """

    application: DemoApplication
    profile: RateProfile
    seed: int = 0


class Driver:
    """Sends the streams' queries through the same connections.

    :meth:`run` sends until its time is up or :meth:`stop`. A query is counted in the period in which it ends, and its
    latency runs from the moment it was due, so a load that falls behind cannot hide it.

    Attributes:
        counts: by application, of the current period; :meth:`take` ends a period.
        key: the API key; may be replaced at any time.
    """

    def __init__(self, clients: Clients, streams: list[QueryStream], key: str):
        self._clients = clients
        self._streams = streams
        self.key = key
        self._queries = {s.application.name: v2.queries(s.application) for s in streams}
        self._labels = {s.application.name: s.application.labels() for s in streams}
        self._stopped = asyncio.Event()
        self._in_flight: dict[str, set[asyncio.Task]] = {name: set() for name in self._queries}
        self.counts = {name: QueryCounts() for name in self._queries}
        self.begun = 0.0
        self.last_error = ""

    def stop(self) -> None:
        """Send nothing more; :meth:`run` returns at once."""
        self._stopped.set()

    def take(self) -> dict[str, QueryCounts]:
        """The counts since the last call, by application."""
        taken, self.counts = self.counts, {name: QueryCounts() for name in self.counts}
        return taken

    def elapsed(self) -> float:
        """Seconds since :meth:`run` began."""
        return time.monotonic() - self.begun

    async def run(self, seconds: float | None = None, grace_s: float = 0.0) -> None:
        """Send for ``seconds``, then wait up to ``grace_s`` for the last answers.

        Queries in flight after that, or when stopped, are counted as abandoned.

        Args:
            seconds: None: until stopped.
        """
        self.begun = time.monotonic()
        senders = [asyncio.create_task(self._send_all(stream, seconds)) for stream in self._streams]
        stopped = asyncio.create_task(self._stopped.wait())
        everything = asyncio.gather(*senders)
        try:
            await asyncio.wait([everything, stopped], return_when=asyncio.FIRST_COMPLETED)
            if everything.done():
                everything.result()
                until = time.monotonic() + grace_s
                while any(self._in_flight.values()) and time.monotonic() < until and not self._stopped.is_set():
                    await asyncio.sleep(0.02)
        finally:
            for task in (*senders, stopped):
                task.cancel()
            await asyncio.gather(*senders, stopped, return_exceptions=True)
            await asyncio.gather(everything, return_exceptions=True)
            await self._abandon()

    async def _abandon(self) -> None:
        """Cancel and count what is in flight."""
        for name, tasks in self._in_flight.items():
            open_tasks = [task for task in tasks if not task.done()]
            self.counts[name].abandoned += len(open_tasks)
            for task in open_tasks:
                task.cancel()
            await asyncio.gather(*open_tasks, return_exceptions=True)

    async def _send_all(self, stream: QueryStream, seconds: float | None) -> None:
        chance = random.Random(f"arrivals:{stream.seed}:{stream.application.name}")
        count = len(self._queries[stream.application.name])
        for due in arrivals(stream.profile, chance):
            if seconds is not None and due >= seconds:
                return
            delay = self.begun + due - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            self._send(stream.application, chance.randrange(count), self.begun + due)

    def _send(self, application: DemoApplication, row: int, due: float) -> None:
        name, counts = application.name, self.counts[application.name]
        if sum(map(len, self._in_flight.values())) >= self._clients.limit:
            counts.unsent += 1
            return
        counts.sent += 1
        counts.lags_ms.append((time.monotonic() - due) * 1000)
        task = asyncio.create_task(self._ask(application, row, due))
        self._in_flight[name].add(task)
        task.add_done_callback(self._in_flight[name].discard)

    async def _ask(self, application: DemoApplication, row: int, due: float) -> None:
        name = application.name
        try:
            answer = v2.answer(await self._clients.infer(name, self._queries[name][row], self.key))
        except (InferenceServerException, TimeoutError, ValueError) as error:
            if isinstance(error, InferenceServerException) and error.status() in REFUSED:
                self.counts[name].refused += 1
            else:
                self.counts[name].failed += 1
                self.last_error = f"{name}: {str(error)[:200] or 'no answer'}"
            return
        counts, took_ms = self.counts[name], (time.monotonic() - due) * 1000
        counts.latencies_ms.append(took_ms)
        if took_ms > application.slo_ms:
            counts.late += 1
            return
        counts.in_time += 1
        counts.accuracy_sum += answer.accuracy
        counts.correct += bool(np.equal(self._labels[name][row], answer.label))
        counts.variants[answer.variant] = counts.variants.get(answer.variant, 0) + 1


async def until_ready(clients: Clients, poll_s: float = 0.5) -> None:
    """Wait until the gateway says that every planned application has a warm variant.

    There is no limit on the wait.
    """
    while not await clients.ready():
        await asyncio.sleep(poll_s)
