"""Starting and stopping one service: a process group of its own that dies with the supervisor."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """Runs in the child between fork and exec: the kernel sends SIGTERM when the supervisor is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Guard:
    """The process that cleans up after a supervisor that was killed (see :mod:`appliance.local.guard`)."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def send(self, word: str, group: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.stdin.write(f"{word} {group}\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(10)


@dataclass
class SupervisedService:
    """One supervised process.

    ``ready`` is polled after the start until it returns true. ``stop_s``: how long it may take to end after SIGTERM.
    ``essential``: without it the start is given up.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] | None = None
    ready_s: float = 60.0
    stop_s: float = 3.0
    restart: bool = True
    log: Path | None = None
    process: subprocess.Popen | None = None
    started_at: float = 0.0
    failures: int = 0
    restart_at: float = 0.0

    def start(self, guard: Guard) -> None:
        """Start the process in a session of its own, so that Ctrl-C reaches the supervisor alone."""
        output = self.log.open("ab", buffering=0) if self.log is not None else None
        try:
            self.process = subprocess.Popen(
                list(self.command),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        finally:
            if output is not None:
                output.close()
        self.started_at = time.monotonic()
        guard.send("add", self.process.pid)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, guard: Guard) -> None:
        """SIGTERM to the group's leader, SIGKILL to the whole group when its time is over."""
        if self.process is None:
            return
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(self.stop_s)
            except subprocess.TimeoutExpired:
                pass
        # Its children too: a leader that died may leave some behind.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(5)
        guard.send("remove", self.process.pid)
