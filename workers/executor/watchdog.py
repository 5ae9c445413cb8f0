"""A limit on runs: one that exceeds it is terminated, or the process ends.

ONNX Runtime checks its terminate flag between two nodes of a graph. A run that does not end then (a kernel hangs)
cannot be interrupted: the process exits with ``EXIT_STUCK``, and its supervisor starts another one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

import onnxruntime as ort

from workers.protocol.endings import EXIT_MEMORY, EXIT_STUCK
from workers.protocol.run_limits import GRACE_S
from workers.protocol.run_record import RUNNING

#: seconds between two looks at the run in progress
POLL_S = 0.1
#: least limits of warm-up and profiling runs in seconds: first runs allocate memory and choose kernels
WARM_UP_LEAST_S, PROFILING_LEAST_S = 30.0, 10.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: ONNX Runtime's highest severity
_FATAL = 4


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE


def _run_options() -> ort.RunOptions:
    """Have ONNX Runtime raise errors without logging them: they may quote inputs."""
    options = ort.RunOptions()
    options.log_severity_level = _FATAL
    return options


class Watchdog:
    """Runs calls under a limit, one at a time, in whichever thread calls.

    Args:
        exit_process: called with a status to end the process.
        memory_limit: bytes that the process may take; 0: any number.

    Attributes:
        options: run options of the call in progress; every model run of it must use them.
        record: where the variant in progress is noted, by :mod:`workers.protocol.run_record`.
        terminating: whether the call in progress was terminated.
        shrink_next: set, the next call's run gives back at its end what the memory arena holds beyond need.
        end_process: ends the process with a status.
        stopped_after_s: the limit that the latest call exceeded; 0 when it did not.
    """

    def __init__(
        self,
        record: MutableSequence[int] | memoryview = (),
        exit_process: Callable[[int], Any] = os._exit,
        memory_limit: int = 0,
    ):
        self.options = _run_options()
        self.terminating = False
        self.stopped_after_s = 0.0
        self.record = record or [0, 0]
        self.end_process = exit_process
        self._memory_limit = memory_limit
        self.shrink_next = False
        self._shrinking = False
        self._lock = threading.Lock()
        self._limit: float | None = None
        self._elapsed = 0.0
        self._exceeded = False
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def call(self, seconds: float, variant: int, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call ``function(*arguments)`` with a limit.

        Args:
            seconds: the limit; the process' own scheduling delays do not count towards it.
            variant: id of the variant that runs, for the record that outlives a crash; 0 for none.
        """
        self.record[RUNNING] = variant
        with self._lock:
            self._limit, self._elapsed = seconds, 0.0
            if self.shrink_next:
                self.shrink_next, self._shrinking = False, True
                self.options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            return function(*arguments)
        finally:
            with self._lock:
                self._limit = None
                self.stopped_after_s = seconds if self._exceeded else 0.0
                if self.terminating or self._shrinking:
                    self.terminating = self._exceeded = self._shrinking = False
                    self.options = _run_options()
            self.record[RUNNING] = 0

    def terminate(self) -> None:
        """Terminate the call in progress by request; the process does not end for it."""
        with self._lock:
            if self._limit is not None:
                self.terminating = self.options.terminate = True

    def _watch(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(POLL_S)
            now = time.monotonic()
            # A process that was stopped or starved must not blame the run: no look counts for more than two.
            step, before = min(now - before, 2 * POLL_S), now
            if 0 < self._memory_limit < resident_bytes():
                # Beyond what the limit on the process's data stops: mappings that are shared, and a GPU's.
                print("watchdog: the process takes more memory than its device has", file=sys.stderr, flush=True)
                self.end_process(EXIT_MEMORY)
                return
            with self._lock:
                if self._limit is None:
                    continue
                self._elapsed += step
                if self._exceeded:
                    if self._elapsed < GRACE_S:
                        continue
                    print(f"watchdog: a run did not end {GRACE_S:g} s after its limit", file=sys.stderr, flush=True)
                    self.end_process(EXIT_STUCK)
                elif self._elapsed >= self._limit:
                    self._exceeded = self.terminating = self.options.terminate = True
                    self._elapsed = 0.0
