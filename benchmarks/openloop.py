"""An open-loop client: queries leave at given times, whether or not earlier ones were answered, and are counted
strictly, from the moment they were due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from appliance.demo import v2
from appliance.demo.counts import Counts
from appliance.demo.drive import REFUSED
from appliance.demo.manifest import DemoApplication
from appliance.demo.wire import HttpPool
from scheduler.simulation.arrivals import Arrivals

#: an answer that takes longer counts as none
PATIENCE_S = 5.0
#: connections are kept, as clients do; these are opened beforehand
CONNECTIONS = 16
#: single queries to each application that a probe sends, and the pause after each
PROBES, PAUSE_S = 20, 0.02


class Client:
    """Use once. ``counts``: what came of the queries of :meth:`replay`; ``answers``: (application, variant, rows of
    its batch) of each answer, in time or late."""

    def __init__(self, url: str, key: str, applications: Sequence[DemoApplication]):
        self._pool = HttpPool(url, limit=4096, timeout_s=PATIENCE_S)
        self._slo_ms = {application.name: application.slo_ms for application in applications}
        self._requests = {a.name: v2.queries(self._pool, a, key) for a in applications}
        self.counts = Counts()
        self.answers: list[tuple[str, str, int]] = []

    async def replay(self, arrivals: Arrivals) -> None:
        """Send a query of one row at each arrival, and wait for the last answer."""
        try:
            await asyncio.gather(*(self._pool.get("/v2/health/ready") for _ in range(CONNECTIONS)))
            begun = time.monotonic() + 0.05
            for i, (due, index) in enumerate(zip(arrivals.times, arrivals.applications, strict=True)):
                delay = begun + due - time.monotonic()
                if delay > 0:
                    await asyncio.sleep(delay)
                name = arrivals.names[index]
                requests = self._requests[name]
                self._send(name, requests[i % len(requests)], begun + due)
            # One sweep more than the pool's patience, so that every query has an end.
            until = time.monotonic() + PATIENCE_S + 2
            while self._pool.in_flight and time.monotonic() < until:
                await asyncio.sleep(0.02)
        finally:
            self._pool.close()

    def _send(self, name: str, request: bytes, due: float) -> None:
        counts = self.counts

        def answered(status: int | None, headers: dict[bytes, bytes], body: bytes) -> None:
            took_ms = (time.monotonic() - due) * 1000
            if status != 200:
                if status in REFUSED:
                    counts.refused += 1
                else:
                    counts.failed += 1
                return
            told = v2.answer(headers, body).parameters
            self.answers.append((name, told.variant, told.batch_size))
            counts.latencies_ms.append(took_ms)
            if took_ms > self._slo_ms[name]:
                counts.late += 1
                return
            counts.in_time += 1
            counts.accuracy_sum += told.accuracy or 0.0

        # Counted before it is sent: a pool may answer (with a failure) before send returns.
        counts.sent += 1
        if not self._pool.send(request, answered):
            counts.sent -= 1
            counts.unsent += 1

    async def probe(self, versions: Mapping[str, str]) -> list[float]:
        """Round trips (s) of single queries, one after the other, that insist on the variant ``versions`` names for
        each application. Those that are not answered with a result are left out: a plan may have moved on.

        Raises:
            RuntimeError: none was answered.
        """
        loop, taken, refused = asyncio.get_running_loop(), [], b""
        try:
            for name, version in versions.items():
                path, pinned = f"/v2/models/{name}/infer", f"/v2/models/{name}/versions/{version}/infer"
                for request in self._requests[name][:PROBES]:
                    answer: asyncio.Future[tuple] = loop.create_future()
                    began = time.monotonic()
                    request = request.replace(path.encode(), pinned.encode(), 1)
                    self._pool.send(request, lambda *told, to=answer: to.set_result(told))
                    status, _, body = await answer
                    if status == 200:
                        taken.append(time.monotonic() - began)
                    else:
                        refused = body
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._pool.close()
        if not taken:
            raise RuntimeError(f"{versions}: not one query was answered: {refused[:200]!r}")
        return taken
