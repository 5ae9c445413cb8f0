"""Clients in a process of their own, apart from the benchmark's own work.

Their measurements do not contain the work that the benchmark itself does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from tools.child import ROOT


class Work(Protocol):
    """The orders of a clients' process.

    Attributes:
        file: the file of its record.
        patience_s: how long it waits for an answer.
    """

    file: str
    patience_s: float


class ClientProcess:
    """A process that runs a clients' module; a context manager.

    The module takes its work as a line of JSON, prints ``ready``, and sends until its input ends.

    Args:
        attempts: of a query, each of which may take the work's patience.
    """

    def __init__(self, module: str, work: Work, attempts: int = 1) -> None:
        self._module, self._work = module, work
        self._most_s = attempts * work.patience_s + 60

    def __enter__(self) -> ClientProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._process.stdin.write(msgspec.json.encode(self._work).decode() + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{self._module} did not start")
        return self

    def __exit__(self, *_error) -> None:
        self.stop()

    def stop(self) -> None:
        """End the load, and wait until all queries have ended."""
        if not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.wait(self._most_s)

    @property
    def file(self) -> Path:
        """The record of what was sent and answered."""
        return Path(self._work.file)
