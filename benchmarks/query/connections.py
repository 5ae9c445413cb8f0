"""Two thousand open connections, nearly all of them idle, beside eight that are busy.

The same eight run alone before, in turns. Each idle connection sends one query when it is opened and one at the end, so
that a connection that was lost meanwhile shows.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from .alone import Alone
from .load import Generator, Spent
from .models import tiny
from .servers import Nereus
from .serving import Effort
from .stack import Stack
from .table import Row

IDLE, BUSY = 1992, 8


def section(effort: Effort) -> list[Row]:
    """A row without and one with the idle connections."""
    found: dict[int, list[Spent]] = {0: [], IDLE: []}
    with tempfile.TemporaryDirectory(prefix="nereus-q-") as home:
        folder = Path(home)
        model = tiny(folder)
        profile = Alone(model, min(os.sched_getaffinity(0))).profile(effort.alone_s)
        with Stack(folder, [model], {model.name: profile}) as stack, Generator() as generator:
            server = Nereus(stack, model)
            for _ in range(effort.rounds):
                for idle, spent in found.items():
                    load = server.load(
                        mode="closed", connections=BUSY, idle=idle, seconds=effort.seconds, slo_s=model.slo_s
                    )
                    spent.append(generator.run(load, server.cpu_s))
    return [
        {
            "connections": idle + BUSY,
            "idle": idle,
            "queries/s": statistics.median(one.queries_s for one in spent),
            "p50 ms": statistics.median(one.outcome.p50_s * 1e3 for one in spent),
            "p99 ms": statistics.median(one.outcome.p99_s * 1e3 for one in spent),
            "server µs": statistics.median(one.total_us for one in spent),
            "lost": sum(one.outcome.sent - one.outcome.answered for one in spent),
        }
        for idle, spent in found.items()
    ]
