"""Samples that are taken in threads while something runs.

They may fail while it is broken.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable


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
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, after the calls that are under way."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, sample: Callable[[], None], every_s: float) -> None:
        while not self._over.wait(every_s):
            with contextlib.suppress(Exception):
                sample()
