"""A light load that records each query's end."""

from __future__ import annotations

import threading
import time
from collections import Counter

import httpx2


class LightLoad:
    """Sends a query every ``every_s`` seconds; a context manager.

    It keeps its connection.

    Attributes:
        day: counted into with each query.
        sent: queries so far.
        failed: how often, by (day, how it failed).
        slowest_s: the slowest answer.
    """

    def __init__(self, url: str, key: str, application: str, body: dict, every_s: float = 0.2) -> None:
        self._url, self._key, self._every_s = url, key, every_s
        self._path, self._body = f"/v2/models/{application}/infer", body
        self._over, self._go = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._go.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.day, self.sent, self.slowest_s = 0, 0, 0.0
        self.failed: Counter[tuple[int, str]] = Counter()

    def __enter__(self) -> LightLoad:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._go.set()
        self._thread.join(60)

    def pause(self) -> None:
        """Return once no query is under way; none is sent until :meth:`resume`."""
        self._idle.clear()
        self._go.clear()
        self._idle.wait(60)

    def resume(self) -> None:
        self._go.set()

    def _run(self) -> None:
        while not self._over.is_set():
            with httpx2.Client(
                base_url=self._url, headers={"Authorization": f"Bearer {self._key}"}, timeout=60
            ) as client:
                while self._go.is_set() and not self._over.wait(self._every_s):
                    self._query(client)
            self._idle.set()
            self._go.wait()

    def _query(self, client: httpx2.Client) -> None:
        started = time.monotonic()
        try:
            answer = client.post(self._path, json=self._body)
            end = "" if answer.status_code == 200 else f"{answer.status_code} {answer.text[:120]}"
        except httpx2.HTTPError as error:
            end = type(error).__name__
        self.sent += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        if end:
            self.failed[self.day, end] += 1
