"""Samples that are taken in threads while something runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import psutil

MIB = 2**20


@contextlib.contextmanager
def may_fail(what: str) -> Iterator[None]:
    """Go on after any error: it is expected while an appliance is broken, and another look may succeed."""
    try:
        yield
    except Exception:
        logging.getLogger(__name__).debug("%s failed", what, exc_info=True)


class Sampling:
    """Calls functions again and again, each after so many seconds, from ``start`` to ``stop``."""

    def __init__(self, samples: Iterable[tuple[Callable[[], None], float]]) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=sample, daemon=True) for sample in samples]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, sample: Callable[[], None], every_s: float) -> None:
        while not self._over.wait(every_s):
            with may_fail("a sample"):
                sample()


class Sample(NamedTuple):
    """A process at one moment.

    Attributes:
        at: seconds of ``time.monotonic()``.
        memory: MiB.
        descriptors: without those of established TCP connections.
    """

    at: float
    memory: float
    descriptors: int
    threads: int
    cpu_s: float


class Watch:
    """Samples processes, as long as they live; a context manager.

    ``samples``: by name of the process, in order. ``failed``: why one could not be sampled any more.
    """

    def __init__(self, pids: Mapping[str, int], every_s: float = 1.0):
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._sampling = Sampling([(self._sample, every_s)])
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}
        self.failed = ""

    def __enter__(self) -> Watch:
        self._sample()
        self._sampling.start()
        return self

    def __exit__(self, *_error) -> None:
        self._sampling.stop()

    def _sample(self) -> None:
        try:
            for name, process in self._processes.items():
                with process.oneshot():
                    cpu, memory = process.cpu_times(), process.memory_info().rss / MIB
                    connections = process.net_connections("tcp")
                    connected = sum(one.status == psutil.CONN_ESTABLISHED for one in connections)
                    descriptors, threads = process.num_fds() - connected, process.num_threads()
                self.samples[name].append(Sample(time.monotonic(), memory, descriptors, threads, cpu.user + cpu.system))
        except psutil.Error as error:
            self.failed = str(error)

    def at(self, name: str, moment: float) -> Sample:
        return next((one for one in self.samples[name] if one.at >= moment), self.samples[name][-1])

    def cores(self, name: str, start: float, end: float) -> float:
        first, last = self.at(name, start), self.at(name, end)
        return (last.cpu_s - first.cpu_s) / max(last.at - first.at, 1e-9)
