"""Batch sizes and threads of a CPU device: ``python -m benchmarks parallelism``.

InfAdapter's study (Salmani et al., EuroMLSys '23, Section 5, Fig. 4) on this ONNX Runtime. There, batches of one with
as many inter-op threads as cores and one intra-op thread were best. TensorFlow's inter-op threads are shared by
requests; ONNX Runtime's run branches of one graph, so that the same choice is here *callers*: as many runs at a time as
cores.

*intra*: threads of an operator; *inter*: threads for branches (parallel execution where more than one); *callers*:
threads that run batches one after the other. Configurations take turns; figures are medians of rounds. *rows/s* and
*mean ms* need a quiet machine; *CPU ms a row*, of all threads of this process, hardly does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import onnxruntime

from .figures import Row, heading, markdown
from .models import Model, resnet18

BATCHES = (1, 8)


@dataclass(frozen=True)
class Configuration:
    """Threads of an operator, threads for branches, and runs at a time."""

    name: str
    intra: int
    inter: int
    callers: int


@dataclass(frozen=True)
class Measured:
    """One round: rows/s, milliseconds of a run, and CPU milliseconds of a row."""

    rows_s: float
    mean_ms: float
    cpu_ms: float


def configurations(cores: int) -> tuple[Configuration, ...]:
    """The product's, the paper's, and what lies between."""
    return (
        Configuration("as served", cores, 1, 1),
        Configuration("branches", 1, cores, 1),
        Configuration("as InfAdapter", 1, 1, cores),
        Configuration("both", cores, 1, cores),
        Configuration("one thread", 1, 1, 1),
    )


def session(model: Model, one: Configuration) -> onnxruntime.InferenceSession:
    """As an executor makes it, with other threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = one.intra, one.inter
    modes = onnxruntime.ExecutionMode
    options.execution_mode = modes.ORT_PARALLEL if one.inter > 1 else modes.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])


def measured(runs: onnxruntime.InferenceSession, model: Model, batch: int, callers: int, seconds: float) -> Measured:
    """A closed loop of ``callers``; each runs one batch at least."""
    rows = model.rows(batch)
    runs.run(None, {"x": rows})
    took: list[list[float]] = [[] for _ in range(callers)]
    began, cpu = time.monotonic(), time.process_time()
    end = began + seconds

    def call(mine: list[float]) -> None:
        while not mine or time.monotonic() < end:
            started = time.monotonic()
            runs.run(None, {"x": rows})
            mine.append(time.monotonic() - started)

    threads = [threading.Thread(target=call, args=(mine,)) for mine in took]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
    every = [second for mine in took for second in mine]
    return Measured(batch * len(every) / wall_s, fmean(every) * 1000, cpu_s * 1000 / (batch * len(every)))


def study(model: Model, cores: int, batches: Sequence[int], rounds: int, seconds: float) -> list[Row]:
    """A row for each batch size and configuration."""
    cases = [(batch, one, session(model, one)) for batch in batches for one in configurations(cores)]
    found: list[list[Measured]] = [[] for _ in cases]
    for _ in range(rounds):
        for (batch, one, runs), mine in zip(cases, found, strict=True):
            mine.append(measured(runs, model, batch, one.callers, seconds))
    return [
        {
            "batch": batch,
            "threads": one.name,
            "intra": one.intra,
            "inter": one.inter,
            "callers": one.callers,
            "rows/s": median(each.rows_s for each in mine),
            "mean ms": median(each.mean_ms for each in mine),
            "CPU ms a row": median(each.cpu_ms for each in mine),
        }
        for (batch, one, _), mine in zip(cases, found, strict=True)
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks parallelism", description=__doc__.split("\n\n")[0])
    usable = len(os.sched_getaffinity(0))
    parser.add_argument("--cores", type=int, default=usable, help="threads in all (default: those of this machine)")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each configuration in a round")
    options = parser.parse_args(arguments)
    for name in ("cores", "rounds", "seconds"):
        if not getattr(options, name) > 0:
            print(f"--{name}: must be above 0, not {getattr(options, name)}", file=sys.stderr)
            return 2
    if min(options.batches) < 1:
        print(f"--batches: must be at least 1, not {min(options.batches)}", file=sys.stderr)
        return 2
    about = heading("Parallelism", __doc__)
    with tempfile.TemporaryDirectory() as folder:
        model = resnet18(Path(folder))
        rows = study(model, options.cores, options.batches, options.rounds, options.seconds)
    print(f"{about}\n{markdown(rows)}")
    return 0
