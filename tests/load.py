"""A steady open-loop load on V2 HTTP for tests, and what became of every query.

With several addresses queries go to each in turn, and to the next one where a connection is refused.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx2

from tests.running import v2_request


@dataclass
class Report:
    """Answers by status and variant; ``refused``: connections before another address was asked."""

    statuses: Counter = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    variants: Counter = field(default_factory=Counter)
    slowest_s: float = 0.0
    sent: int = 0
    unanswered: int = 0
    refused: int = 0

    @property
    def ok(self) -> int:
        return self.statuses[200]


class Load:
    """Queries to ``url`` and ``others`` at ``rate`` a second from a thread of its own, within the block."""

    def __init__(
        self,
        url: str,
        key: str,
        application: str = "tiny",
        rate: float = 20,
        others: Sequence[str] = (),
        trust: ssl.SSLContext | None = None,
    ):
        self._urls, self._key, self._application, self._rate = [url, *others], key, application, rate
        self._verify = trust if trust is not None else True
        self._stop = threading.Event()
        self.report = Report()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> Report:
        self._stop.set()
        self._thread.join(300)
        return self.report

    async def _run(self) -> None:
        async with httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"},
            timeout=120,
            limits=httpx2.Limits(max_connections=200, max_keepalive_connections=50),
            verify=self._verify,
        ) as client:
            tasks = set()
            while not self._stop.is_set():
                task = asyncio.create_task(self._one(client))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(1 / self._rate)
            if tasks:
                await asyncio.wait(tasks, timeout=150)
            self.report.unanswered += len(tasks)

    async def _one(self, client: httpx2.AsyncClient) -> None:
        turn = self.report.sent
        self.report.sent += 1
        started = time.monotonic()
        try:
            answer = await self._answer(client, turn)
        except httpx2.HTTPError as error:
            self.report.errors.append(repr(error))
            self.report.statuses["transport"] += 1
            return
        self.report.slowest_s = max(self.report.slowest_s, time.monotonic() - started)
        self.report.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.report.variants[answer.json()["parameters"]["variant"]] += 1
        else:
            self.report.errors.append(f"{answer.status_code} {answer.text[:300]}")

    async def _answer(self, client: httpx2.AsyncClient, turn: int) -> httpx2.Response:
        first = turn % len(self._urls)
        *before, last = [*self._urls[first:], *self._urls[:first]]
        for url in before:
            try:
                return await self._send(client, url)
            except httpx2.ConnectError:
                self.report.refused += 1
        return await self._send(client, last)

    async def _send(self, client: httpx2.AsyncClient, url: str) -> httpx2.Response:
        return await client.post(f"{url}/v2/models/{self._application}/infer", json=v2_request())
