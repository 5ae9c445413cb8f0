"""What serving adds to the latency of one query that finds the appliance idle.

One client with a pause after each answer, in turns with the session called in this process with the same pauses.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from .alone import Alone
from .load import Generator
from .models import MODELS
from .servers import Nereus
from .serving import Effort
from .stack import Stack
from .table import Row

PAUSE_S = 0.005


def section(effort: Effort) -> list[Row]:
    """A row for each model."""
    rows = []
    for name in MODELS:
        with tempfile.TemporaryDirectory(prefix="nereus-q-") as folder:
            rows.append(_row(name, effort, Path(folder)))
    return rows


def _row(name: str, effort: Effort, folder: Path) -> Row:
    model = MODELS[name](folder)
    alone = Alone(model, min(os.sched_getaffinity(0)))
    called, served = [], []
    with Stack(folder, [model], {name: alone.profile(effort.alone_s)}) as stack, Generator() as generator:
        server = Nereus(stack, model)
        for _ in range(effort.rounds):
            called.append(statistics.median(alone.latencies_s(effort.seconds, PAUSE_S)))
            load = server.load(
                mode="closed", connections=1, seconds=effort.seconds, slo_s=model.slo_s, pause_s=PAUSE_S, warm_up=20
            )
            served.append(generator.run(load, server.cpu_s).outcome.p50_s)
    added = [one - other for one, other in zip(served, called, strict=True)]
    return {
        "model": name,
        "served p50 ms": statistics.median(served) * 1e3,
        "called p50 ms": statistics.median(called) * 1e3,
        "added p50 ms": statistics.median(added) * 1e3,
    }
