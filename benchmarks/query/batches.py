"""``python -m benchmarks.query.batches``: what a granted batch costs the process that runs it, in CPU microseconds.

A real executor on one core is sent batches at a pace, each once the one before is answered, from another core; in turns
with a process that only reads as many bytes, calls the session, and writes its outputs, and with the session called in
a loop. The first difference is what the executor adds, the second one what it costs to be woken for each batch.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from workers.protocol.frames import Form, Grant, Hello, TensorHeader, encode
from workers.protocol.framing import PREFIX, Framing

from .alone import Alone
from .models import MODELS, Model
from .stack import Stack, process_cpu_s
from .table import Row, markdown

BUDGET_S = 0.9
#: how long the processes warm up
_WARM_S = 0.2
#: how the headers of an answer and of a refusal begin, behind the number of their fields
_ANSWERED, _REFUSED = msgspec.msgpack.encode("Results"), msgspec.msgpack.encode("Refusal")


class _Wire:
    """A blocking connection that sends a request and waits until all of its answer is there."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))

    def ask(self, request: bytes, answer: int) -> None:
        self.send(request)
        while answer > 0:
            got = self._socket.recv(min(answer, 1 << 20))
            if not got:
                raise ConnectionError("the process closed its connection")
            answer -= len(got)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def header(self) -> bytes:
        """Header of the next frame."""
        _, _, _, header, body = PREFIX.unpack(self._exactly(PREFIX.size))
        return self._exactly(header + body)[:header]

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self._socket.recv(count - len(got))
            if not more:
                raise ConnectionError("the process closed its connection")
            got += more
        return got


def _grants(model: Model, rows: int) -> Iterator[bytes]:
    """Batches of queries of one row, without end."""
    array = model.rows(1)
    form = Form(1, (TensorHeader("x", "FP32", array.shape, array.nbytes),))
    body, number = [array.tobytes()] * rows, 0
    while True:
        number += 1
        queries = tuple((number * rows + i, 0, BUDGET_S) for i in range(rows))
        yield b"".join(encode(Grant(number, model.name, 1, rows, (form,), queries), body))


def _each_us(pid: int, ask: Callable[[], None], seconds: float, gap_s: float) -> list[float]:
    """CPU microseconds of a process for each time that it is asked and then left alone for ``gap_s``."""
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        before = process_cpu_s(pid)
        ask()
        until = time.perf_counter() + gap_s
        # A sleeping client's core would fall asleep, too, and be slow to wake.
        while time.perf_counter() < until:
            pass
        found.append((process_cpu_s(pid) - before) * 1e6)
    return found


class _Bare(asyncio.BufferedProtocol):
    """Frames whose header is not looked at, into the session and out."""

    def __init__(self, model: Model):
        self._model = model
        self._session = model.session()
        self._framing = Framing(lambda size: np.empty(size, np.uint8))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framing.space()

    def buffer_updated(self, nbytes: int) -> None:
        for _, body in self._framing.filled(nbytes):
            x = np.frombuffer(body, np.float32).reshape((-1, *self._model.row))
            self._transport.write(self._session.run(["y"], {"x": x})[0].tobytes())


async def _serve_bare(model: Model, path: str, core: int) -> None:
    os.sched_setaffinity(0, {core})
    await asyncio.get_running_loop().create_unix_server(lambda: _Bare(model), path)
    await asyncio.Event().wait()


def section(name: str, rows: int, gap_s: float, rounds: int, seconds: float) -> list[Row]:
    """A row for each way to run the batches."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="nereus-q-") as home:
        folder = Path(home)
        model = MODELS[name](folder)
        alone, path = Alone(model, cores[0]), folder / "bare.sock"
        own = [sys.executable, "-m", "benchmarks.query.batches", "--bare", str(path), "--model", name]
        found: dict[str, list[float]] = {"executor": [], "bare": [], "session in a loop": []}
        with Stack(folder, [model], {name: alone.profile(seconds)}) as stack, subprocess.Popen(own) as process:
            try:
                while not path.exists():
                    if process.poll() is not None:
                        raise RuntimeError("the bare process ended")
                    time.sleep(0.02)
                os.sched_setaffinity(0, {cores[-1]})
                ways = _ways(folder, model, rows, stack.pid("executor"), path, process.pid)
                for ask, pid in ways.values():
                    _each_us(pid, ask, _WARM_S, gap_s)
                for _ in range(rounds):
                    for way, (ask, pid) in ways.items():
                        found[way] += _each_us(pid, ask, seconds, gap_s)
                    found["session in a loop"].append(rows * alone.cpu_us(rows, seconds))
            finally:
                os.sched_setaffinity(0, cores)
                process.terminate()
    return [_row(way, rows, times) for way, times in found.items()]


def _ways(
    folder: Path, model: Model, rows: int, executor: int, bare: Path, bare_pid: int
) -> dict[str, tuple[Callable[[], None], int]]:
    made = _grants(model, rows)
    gateway, plain = _Wire(folder / "executor.sock"), _Wire(bare)
    gateway.send(b"".join(encode(Hello("gateway", "benchmark"))))

    def granted() -> None:
        gateway.send(next(made))
        while not (header := gateway.header()).startswith(_ANSWERED, 1):
            if header.startswith(_REFUSED, 1):
                raise RuntimeError(f"not answered: {header!r}")

    request = next(_grants(model, rows))
    size = len(model.session().run(["y"], {"x": model.rows(rows)})[0].tobytes())
    return {"executor": (granted, executor), "bare": (lambda: plain.ask(request, size), bare_pid)}


def _row(way: str, rows: int, times: list[float]) -> Row:
    ordered = sorted(times)
    return {
        "way": way,
        "rows": rows,
        "batches or rounds": len(times),
        "least µs": ordered[len(ordered) // 20],
        "lower quartile µs": ordered[len(ordered) // 4],
        "median µs": statistics.median(times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.query.batches", description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=list(MODELS), default="tiny")
    parser.add_argument("--rows", type=int, nargs="+", default=[4])
    parser.add_argument("--gap-us", type=float, default=300.0, help="pause after each answer, at least 100")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each way in each round")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.gap_us < 100:
        parser.error("--gap-us: at least 100, or what follows an answer counts for the next batch")
    if given.bare:
        with tempfile.TemporaryDirectory(prefix="nereus-q-") as folder:
            uvloop.run(_serve_bare(MODELS[given.model](Path(folder)), given.bare, min(os.sched_getaffinity(0))))
    found = [
        row
        for rows in given.rows
        for row in section(given.model, rows, given.gap_us * 1e-6, given.rounds, given.seconds)
    ]
    print(markdown(found))


if __name__ == "__main__":
    main()
