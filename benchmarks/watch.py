"""Samples that are taken in threads while something runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import psutil

MIB = 1024 * 1024


class Sample(NamedTuple):
    """A process at one moment.

    Attributes:
        at: seconds of ``time.monotonic()``.
        connections: how many of the descriptors are established TCP connections.
    """

    at: float
    rss_mib: float
    descriptors: int
    connections: int
    threads: int
    cpu_s: float


class Watch:
    """Samples processes in a thread of this process; a context manager.

    ``samples``: by name of the process, in order. ``failed``: why one could not be sampled any more.
    """

    def __init__(self, pids: Mapping[str, int], every_s: float = 1.0):
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}
        self.failed = ""

    def __enter__(self) -> Watch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_error) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._sample()
            except psutil.Error as error:
                self.failed = str(error)
                return

    def _sample(self) -> None:
        for name, process in self._processes.items():
            with process.oneshot():
                cpu, connections = process.cpu_times(), process.net_connections("tcp")
                self.samples[name].append(
                    Sample(
                        time.monotonic(),
                        process.memory_info().rss / MIB,
                        process.num_fds(),
                        sum(one.status == psutil.CONN_ESTABLISHED for one in connections),
                        process.num_threads(),
                        cpu.user + cpu.system,
                    )
                )

    def at(self, name: str, moment: float) -> Sample:
        """The first sample at or after a moment of ``time.monotonic()``, or the last one."""
        return next((one for one in self.samples[name] if one.at >= moment), self.samples[name][-1])

    def cores(self, name: str, start: float, end: float) -> float:
        first, last = self.at(name, start), self.at(name, end)
        return (last.cpu_s - first.cpu_s) / max(last.at - first.at, 1e-9)

    def series(self, name: str, field: str, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """(moments, values) of a field of :class:`Sample` from ``start`` to ``end``."""
        some = [one for one in self.samples[name] if start <= one.at <= end]
        return np.array([one.at for one in some]), np.array([getattr(one, field) for one in some], float)


class Sampling:
    """Calls each of some functions again and again, from ``start`` to ``stop``.

    A function that raises is called again: it is expected to while something is broken.

    Args:
        samples: functions, each with the seconds between its calls.
    """

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
            with contextlib.suppress(Exception):
                sample()
