"""Driving the load generator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.query.load import LoadError

from .process import Load, Summary
from .records import GRPC, HTTP, Records


class Recorder:
    """The generator's process; a context manager."""

    def __enter__(self) -> Recorder:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.query.recording.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_error) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, load: Load, slo_s: float, when_warm: Callable[[], None] = lambda: None) -> tuple[Records, Summary]:
        """Carry out a load; ``when_warm`` is called just before it begins.

        Raises:
            LoadError: the generator did not come to its end: nothing answers, or it failed itself.
        """
        self._tell(msgspec.json.encode(load).decode())
        self._hear("ready")
        when_warm()
        self._tell("go")
        summary = msgspec.json.decode(self._hear("{"), type=Summary)
        return Records.read(Path(load.file), GRPC if load.grpc_key else HTTP, slo_s), summary

    def _tell(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, begins: str) -> str:
        line = self._process.stdout.readline().strip()
        if not line.startswith(begins):
            raise LoadError(f"the load generator said {line[:500]!r}")
        return line
