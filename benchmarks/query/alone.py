"""The model alone: its session called in this process, pinned to one core."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .models import Model

BATCHES = (1, 2, 4, 8, 16)


class Alone:
    """A model's session on ``core`` with one thread."""

    def __init__(self, model: Model, core: int):
        self._core = core
        self._session = model.session()
        self._inputs = {batch: {"x": model.rows(batch)} for batch in range(1, max(BATCHES) + 1)}

    def run(self, batch: int) -> None:
        self._session.run(["y"], self._inputs[batch])

    def profile(self, seconds: float) -> dict[int, float]:
        """Median seconds of a run by batch size, as profiling finds them."""
        found = {}
        with _pinned(self._core):
            for batch in BATCHES:
                self.run(batch)
                found[batch] = statistics.median(self._times(batch, seconds, least=3))
        return found

    def cpu_us(self, batch: int, seconds: float) -> float:
        """CPU microseconds a row in batches of this size."""
        return self._rate(batch, seconds)[0]

    def rows_s(self, batch: int, seconds: float) -> float:
        """Rows a second in batches of this size."""
        return self._rate(batch, seconds)[1]

    def _rate(self, batch: int, seconds: float) -> tuple[float, float]:
        with _pinned(self._core):
            self.run(batch)
            runs, cpu, began = 0, time.process_time(), time.perf_counter()
            while not runs or time.perf_counter() - began < seconds:
                self.run(batch)
                runs += 1
            took = time.perf_counter() - began
            return (time.process_time() - cpu) / (runs * batch) * 1e6, runs * batch / took

    def latencies_s(self, seconds: float, pause_s: float) -> list[float]:
        """Seconds of single runs of one row with a pause before each."""
        with _pinned(self._core):
            return list(self._times(1, seconds, least=20, pause_s=pause_s))

    def _times(self, batch: int, seconds: float, least: int, pause_s: float = 0.0) -> Iterator[float]:
        until, done = time.perf_counter() + seconds, 0
        while done < least or time.perf_counter() < until:
            if pause_s:
                time.sleep(pause_s)
            began = time.perf_counter()
            self.run(batch)
            yield time.perf_counter() - began
            done += 1


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)
