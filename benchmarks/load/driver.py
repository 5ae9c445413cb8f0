"""Runs the load generator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from appliance.load.records import GRPC, HTTP, Records
from appliance.load.sender import Load

from .process import Summary

ROOT = Path(__file__).parents[2]


class LoadError(RuntimeError):
    pass


class Generator:
    def __enter__(self) -> Generator:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load.process"],
            cwd=ROOT,
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

        ``slo_s``: from when a query is due to its answer. Raises LoadError.
        """
        self._write(msgspec.json.encode(load).decode())
        self._read("ready")
        when_warm()
        self._write("go")
        summary = msgspec.json.decode(self._read("{"), type=Summary)
        return Records.read(Path(load.file), GRPC if load.grpc_key else HTTP, slo_s), summary

    def _write(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self, begins: str) -> str:
        line = self._process.stdout.readline().strip()
        if not line.startswith(begins):
            raise LoadError(f"the load generator said {line[:500]!r}")
        return line
