"""How long a routing decision takes by number of devices.

``Dispatcher.submit`` books a query that the gateway holds, and ``Router.pick`` chooses for one that it does not. Three
types of devices; each device offers three variants to each of its two applications of six. Batches end on the
dispatcher's virtual clock as it expects them to; arrivals are Poisson, at a part of what the devices can do with their
most accurate variants (more than 1: variants are lowered).
"""

from __future__ import annotations

import gc
import heapq
import itertools
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.routing import SITUATIONS, decision_times_us
from workers.batching.latency import LatencyModel
from workers.dispatch.dispatcher import Dispatcher
from workers.dispatch.menu import Menu, Option

from .table import Row

DEVICES = (40, 160, 1000)
LOADS = (0.5, 0.9, 1.5)
SLO_S, WAY_S = 0.3, 0.001
APPLICATIONS, TYPES, BATCHES = 6, 3, (1, 2, 4, 8, 16)


@dataclass(slots=True)
class _Query:
    arrived: float
    deadline: float
    rows: int = 1
    booking: Any = field(default=None)
    key: Any = None


def _seconds(kind: int, variant: int, rows: int) -> float:
    """A row takes from 2 to 24 ms; sixteen of them six times as long."""
    return 0.002 * (1 + kind) * 2**variant * (1 + (rows - 1) / 3)


def _menus(number: int) -> dict[str, Menu]:
    kind = number % TYPES
    offered = (number // TYPES % APPLICATIONS, (number // TYPES + 1) % APPLICATIONS)
    options = [
        Option(variant, 100.0 - 8 * (2 - variant), LatencyModel([(b, _seconds(kind, variant, b)) for b in BATCHES]), 16)
        for variant in range(3)
    ]
    return {f"app{one}": Menu(options) for one in offered}


def submit_us(devices: int, load: float, seconds: float, filling_s: float = SLO_S) -> tuple[list[float], list[float]]:
    """Microseconds of each ``Dispatcher.submit`` in so many seconds of virtual time after ``filling_s``, and of all its
    calls a query (the ends of batches and wakes included)."""
    dispatcher, draw = Dispatcher(), random.Random(1)
    dispatcher.set_applications({f"app{i}": (SLO_S, False) for i in range(APPLICATIONS)}, 0.0)
    for number in range(devices):
        dispatcher.set_menus(number, _menus(number), 0.0)
        dispatcher.set_way(number, WAY_S)
        dispatcher.set_up(number, True, 0.0)
    capacity = sum(16 / _seconds(number % TYPES, 2, 16) for number in range(devices))
    clock, now, ends, order = time.perf_counter_ns, 0.0, [], itertools.count()
    submits: list[float] = []
    whole: list[float] = []

    def carry_out() -> None:
        for batch in dispatcher.grants:
            heapq.heappush(ends, (batch.end, next(order), batch))
        dispatcher.grants.clear()
        dispatcher.refused.clear()

    gc.collect()
    while now < filling_s + seconds:
        arrives, others_ns = now + draw.expovariate(load * capacity), 0
        while (at := min(dispatcher.wake_at, ends[0][0] if ends else arrives)) < arrives:
            began = clock()
            if ends and ends[0][0] <= at:
                _, _, batch = heapq.heappop(ends)
                dispatcher.ended(batch, at, batch.option.seconds(batch.rows))
            else:
                dispatcher.wake(at)
            others_ns += clock() - began
            carry_out()
        now = arrives
        query = _Query(now, now + SLO_S)
        began = clock()
        dispatcher.submit(f"app{draw.randrange(APPLICATIONS)}", query, now)
        took_ns = clock() - began
        carry_out()
        # While the queues fill up decisions are cheaper than later.
        if now > filling_s:
            submits.append(took_ns / 1e3)
            whole.append((took_ns + others_ns) / 1e3)
    return submits, whole


def section(seconds: float, picks: int, filling_s: float = SLO_S, loads: Sequence[float] = LOADS) -> list[Row]:
    """A row for each number of devices and situation.

    Args:
        seconds: of virtual time, after ``filling_s`` of it, in which queues fill up: one SLO, for full ones.
        picks: queries that are routed at once.
        loads: parts of what the devices can do.
    """
    rows = []
    for devices in DEVICES:
        for load in loads:
            submits, whole = submit_us(devices, load, seconds, filling_s)
            rows.append(_row(devices, "Dispatcher.submit", f"{load:.0%} of capacity", submits, statistics.fmean(whole)))
        for name, situation in SITUATIONS.items():
            rows.append(_row(devices, "Router.pick", name, decision_times_us(devices, situation, picks)))
    return rows


def _row(devices: int, decision: str, situation: str, times: list[float], whole: float | None = None) -> Row:
    return {
        "devices": devices,
        "decision": decision,
        "situation": situation,
        "median µs": statistics.median(times),
        "mean µs": statistics.fmean(times),
        "p99 µs": statistics.quantiles(times, n=100)[-1],
        "with ends and wakes, mean µs": whole,
    }
