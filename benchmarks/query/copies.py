"""How often an image tensor of 600 KB is copied between the gateway's socket and the session's input.

A small library (``moved.c``, compiled when this runs) stands in front of the C library's memcpy, memmove and realloc in
both server processes, and counts the bytes of all moves of 16 KB and more. What the kernel copies in and out of sockets
is told apart: a tensor goes through two sockets, so that is two reads and one write whatever a server does.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from .alone import Alone
from .load import Generator
from .models import resnet18
from .servers import Nereus
from .serving import Effort
from .stack import Stack
from .table import Row

SOURCE = Path(__file__).with_name("moved.c")
COUNTERS = struct.Struct("@2Q")


class NoCompiler(RuntimeError):
    """There is no C compiler here."""


def section(effort: Effort) -> list[Row]:
    """A row for each process and number of queries at once.

    Raises:
        NoCompiler: none was found.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("copies are counted by a C library; no cc was found to compile it")
    with tempfile.TemporaryDirectory(prefix="nereus-q-") as home:
        folder = Path(home)
        library = folder / "moved.so"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        return _count(folder, library, effort)


def _count(folder: Path, library: Path, effort: Effort) -> list[Row]:
    model = resnet18(folder)
    alone = Alone(model, min(os.sched_getaffinity(0)))
    counters = {name: folder / f"{name}.moved" for name in ("gateway", "executor")}
    environment = {name: {"LD_PRELOAD": str(library), "BENCHMARK_MOVED": str(path)} for name, path in counters.items()}
    profile = {model.name: alone.profile(effort.alone_s)}
    tensor = 4 * model.rows(1).size
    rows = []
    with Stack(folder, [model], profile, of=environment) as stack, Generator() as generator:
        server = Nereus(stack, model)
        for connections in (1, 8):
            load = server.load(
                mode="closed", connections=connections, seconds=2 * effort.seconds, slo_s=model.slo_s, warm_up=16
            )
            before: dict[str, tuple[int, int]] = {}

            def cpu_s(before=before) -> dict[str, float]:
                before or before.update({name: COUNTERS.unpack(path.read_bytes()) for name, path in counters.items()})
                return server.cpu_s()

            spent = generator.run(load, cpu_s)
            for name, path in counters.items():
                moved, moves = (a - b for a, b in zip(COUNTERS.unpack(path.read_bytes()), before[name], strict=True))
                rows.append(
                    {
                        "process": name,
                        "connections": connections,
                        "batch": spent.batch,
                        "tensor KB": tensor / 1e3,
                        "moved KB a query": moved / spent.outcome.answered / 1e3,
                        "moves a query": moves / spent.outcome.answered,
                        "copies of the tensor": moved / spent.outcome.answered / tensor,
                    }
                )
    return rows
