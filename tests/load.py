"""A steady open-loop load on V2 HTTP for tests, and what became of every query."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.running import v2_request


@dataclass
class Report:
    """Statuses by count, error texts, the longest answer in seconds, and queries that never got an answer."""

    statuses: Counter = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    variants: Counter = field(default_factory=Counter)
    slowest_s: float = 0.0
    sent: int = 0
    unanswered: int = 0

    @property
    def ok(self) -> int:
        return self.statuses[200]


class Load:
    """Queries at ``rate`` a second from a thread of its own, until :meth:`stop`; a context manager."""

    def __init__(self, url: str, key: str, application: str = "tiny", rate: float = 20):
        self._url, self._key, self._application, self._rate = url, key, application, rate
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
        async with httpx.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"},
            timeout=120,
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
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

    async def _one(self, client: httpx.AsyncClient) -> None:
        self.report.sent += 1
        started = time.monotonic()
        try:
            answer = await client.post(f"{self._url}/v2/models/{self._application}/infer", json=v2_request())
        except httpx.HTTPError as error:
            self.report.errors.append(repr(error))
            self.report.statuses["transport"] += 1
            return
        self.report.slowest_s = max(self.report.slowest_s, time.monotonic() - started)
        self.report.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.report.variants[answer.json()["parameters"]["variant"]] += 1
        else:
            self.report.errors.append(f"{answer.status_code} {answer.text[:300]}")
