"""Copies of an image tensor of 600 KB between gateway socket and session input.

A small library (``moved.c``, compiled when this runs) stands in front of the C library's memcpy, memmove and realloc in
all processes of the appliance, and counts the bytes of all moves of 16 KB and more. Copies that the kernel makes in and
out of sockets are not counted.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load.driver import Generator, LoadError

from .contenders import Appliance, Variant, add_contenders, between, contenders, started
from .figures import Row, heading, markdown
from .models import resnet18
from .query import per_query

APPLICATION, SLO_MS = "images", 5000.0
CONNECTIONS = (1, 8)
SOURCE = Path(__file__).with_name("moved.c")
COUNTERS = struct.Struct("@2Q")


def _moved(appliance: Appliance, folder: Path) -> dict[str, float]:
    """Bytes and moves so far by role."""
    found = {}
    gateways = appliance.pids("gateway") + appliance.pids("core")
    for role, pids in (("gateway", gateways), ("executor", appliance.pids("executor"))):
        each = [COUNTERS.unpack((folder / str(pid)).read_bytes()) for pid in pids]
        found[f"{role} bytes"] = sum(moved for moved, _ in each)
        found[f"{role} moves"] = sum(moves for _, moves in each)
    return found


def _count(appliance: Appliance, folder: Path, moved: Path, seconds: float) -> list[Row]:
    variants = [Variant("only", resnet18(folder), 90.0)]
    appliance.register(APPLICATION, SLO_MS, variants)
    size = variants[0].model.rows(1).nbytes
    rows: list[Row] = []
    with Generator() as generator:
        for connections in CONNECTIONS:
            options = {"connections": connections, "closed_s": seconds, "warm_up": 16}
            load = appliance.load(APPLICATION, variants, folder / "rows.npy", **options)
            found, *_ = per_query(generator, load, lambda: _moved(appliance, moved))
            rows += [
                {
                    "server": appliance.name,
                    "process": role,
                    "connections": connections,
                    "tensor KB": size / 1e3,
                    "moved KB a query": found[f"{role} bytes"] / 1e3,
                    "moves a query": found[f"{role} moves"],
                    "copies of the tensor": found[f"{role} bytes"] / size,
                }
                for role in ("gateway", "executor")
            ]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        1: a query failed, a server did not run, or there is no C compiler. 0 otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks copies", description=__doc__.splitlines()[0])
    add_contenders(parser)
    parser.add_argument("--seconds", type=between(0.1, 600.0), default=4.0, help="of each load (default: 4)")
    given = parser.parse_args(arguments)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("copies: copies are counted by a C library; no cc was found to compile it", file=sys.stderr)
        return 1
    print(heading("Copies of a tensor", __doc__), flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="nereus-c-") as home:
        folder, moved = Path(home), Path(home, "moved")
        moved.mkdir()
        library = folder / "moved.so"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        preload = {"LD_PRELOAD": str(library), "BENCHMARK_MOVED": str(moved)}
        for number, one in enumerate(contenders(given, **preload)):
            part = folder / str(number)
            part.mkdir()
            try:
                with started([one], part) as (appliance,):
                    rows += _count(appliance, part, moved, given.seconds)
            except (LoadError, RuntimeError, OSError) as error:
                print(f"copies: {error}", file=sys.stderr)
                return 1
    print(markdown(rows))
    return 0
