"""What serving adds to the latency of one query that finds nothing else under way.

One client that asks again at once, and one with a pause after each answer in which all processes fall asleep and their
caches go to others, in turns with the session called in this process with the same pauses.
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

PAUSES_S = (0.0, 0.005)


def section(effort: Effort) -> list[Row]:
    """A row for each model and pause."""
    rows = []
    for name in MODELS:
        with tempfile.TemporaryDirectory(prefix="nereus-q-") as folder:
            rows += _rows(name, effort, Path(folder))
    return rows


def _rows(name: str, effort: Effort, folder: Path) -> list[Row]:
    model = MODELS[name](folder)
    alone = Alone(model, min(os.sched_getaffinity(0)))
    called: dict[float, list[float]] = {pause_s: [] for pause_s in PAUSES_S}
    served: dict[float, list[float]] = {pause_s: [] for pause_s in PAUSES_S}
    with Stack(folder, [model], {name: alone.profile(effort.alone_s)}) as stack, Generator() as generator:
        server = Nereus(stack, model)
        for _ in range(effort.rounds):
            for pause_s in PAUSES_S:
                called[pause_s].append(statistics.median(alone.latencies_s(effort.seconds, pause_s)))
                load = server.load(
                    mode="closed", connections=1, seconds=effort.seconds, slo_s=model.slo_s, pause_s=pause_s, warm_up=20
                )
                served[pause_s].append(generator.run(load, server.cpu_s).outcome.p50_s)
    return [
        {
            "model": name,
            "pause ms": pause_s * 1e3,
            "served p50 ms": statistics.median(served[pause_s]) * 1e3,
            "called p50 ms": statistics.median(called[pause_s]) * 1e3,
            "added p50 ms": statistics.median(
                one - other for one, other in zip(served[pause_s], called[pause_s], strict=True)
            )
            * 1e3,
        }
        for pause_s in PAUSES_S
    ]
