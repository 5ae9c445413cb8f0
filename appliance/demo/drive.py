"""An open-loop load: queries leave when they are due, whether or not earlier ones were answered."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

import numpy as np

from . import v2
from .counts import Counts
from .manifest import DemoApplication
from .rates import RateProfile, arrivals
from .wire import HttpPool

REFUSED = frozenset((429, 503, 504))


@dataclass(frozen=True)
class Stream:
    """One application's queries: their rate over time, and which ``seed`` their times and rows are drawn from."""

    application: DemoApplication
    profile: RateProfile
    seed: int = 0


class Driver:
    """Sends the streams' queries through one pool; :meth:`run` until its time is up or :meth:`stop`.

    ``counts``: by application, of the current period; :meth:`take` ends a period. A query is counted in the period in
    which it ends, and its latency runs from the moment it was due, so a load that falls behind cannot hide it.
    """

    def __init__(self, pool: HttpPool, streams: list[Stream], key: str):
        self._pool = pool
        self._streams = streams
        self._queries = {s.application.name: v2.queries(pool, s.application, key) for s in streams}
        self._labels = {s.application.name: s.application.labels() for s in streams}
        self._stopped = asyncio.Event()
        self._in_flight = dict.fromkeys(self._queries, 0)
        self.counts = {name: Counts() for name in self._queries}
        self.begun = 0.0
        self.last_error = ""

    def stop(self) -> None:
        """Send nothing more; :meth:`run` returns at once."""
        self._stopped.set()

    def take(self) -> dict[str, Counts]:
        """The counts since the last call, by application."""
        taken, self.counts = self.counts, {name: Counts() for name in self.counts}
        return taken

    def elapsed(self) -> float:
        """Seconds since :meth:`run` began."""
        return time.monotonic() - self.begun

    async def run(self, seconds: float | None = None, grace_s: float = 0.0) -> None:
        """Send for ``seconds`` (None: until stopped), then wait up to ``grace_s`` for the last answers.

        What is in flight after that, or when stopped, is counted as abandoned.
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
            for name, count in self._in_flight.items():
                self.counts[name].abandoned += count

    async def _send_all(self, stream: Stream, seconds: float | None) -> None:
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
        name = application.name
        slo_ms = application.slo_ms

        def answered(status: int | None, headers: dict[bytes, bytes], body: bytes) -> None:
            self._in_flight[name] -= 1
            self._count(name, row, slo_ms, (time.monotonic() - due) * 1000, status, headers, body)

        # Counted before it is sent: a pool may answer (with a failure) before send returns.
        self._in_flight[name] += 1
        if self._pool.send(self._queries[name][row], answered):
            counts = self.counts[name]
            counts.sent += 1
            counts.lags_ms.append((time.monotonic() - due) * 1000)
        else:
            self._in_flight[name] -= 1
            self.counts[name].unsent += 1

    def _count(self, name: str, row: int, slo_ms: float, took_ms: float, status, headers, body) -> None:
        counts = self.counts[name]
        if status != 200:
            if status in REFUSED:
                counts.refused += 1
            else:
                counts.failed += 1
                self.last_error = f"{name}: {status or 'no answer'}: {body[:200].decode(errors='replace')}"
            return
        try:
            answer = v2.answer(headers, body)
        except ValueError as error:
            counts.failed += 1
            self.last_error = f"{name}: not a usable answer: {error}"
            return
        counts.latencies_ms.append(took_ms)
        if took_ms > slo_ms:
            counts.late += 1
            return
        counts.in_time += 1
        counts.accuracy_sum += answer.parameters.accuracy or 0.0
        counts.correct += bool(np.equal(self._labels[name][row], answer.label))
        variant = answer.parameters.variant
        counts.variants[variant] = counts.variants.get(variant, 0) + 1


async def until_ready(pool: HttpPool, poll_s: float = 0.5) -> None:
    """Wait, for as long as it takes, until the gateway says that every planned application has a warm variant."""
    while await pool.get("/v2/health/ready") != 200:
        await asyncio.sleep(poll_s)
