"""What serving one model costs, beside the session alone, a bare echo server and, where wanted, another server.

CPU time of the server's processes over the queries answered meanwhile. Each row is the median over rounds in which all
servers and loads take turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .alone import BATCHES, Alone
from .load import Generator, Spent
from .models import MODELS, Model
from .servers import Bare, BareGrpc, Mosec, Nereus, Server
from .stack import Stack
from .table import Row

#: of the throughput that 8 connections get: the rate of the open loop
OPEN_SHARE = 0.5
PARTS = ("gateway", "executor")


@dataclass(frozen=True)
class Effort:
    """How long is measured. ``seconds``: one load; ``rounds``; ``alone_s``: the session at one batch size;
    ``warm_up``: queries before."""

    seconds: float = 2.0
    rounds: int = 3
    alone_s: float = 0.15
    warm_up: int = 200

    def of(self, model: Model) -> Effort:
        """A model of tens of milliseconds needs longer for a few batches."""
        return Effort(2.5 * self.seconds, self.rounds, 2 * self.alone_s, 32) if model.name == "resnet18" else self


@dataclass
class _Measured:
    """The rounds of one row. ``raw_us``: CPU microseconds a row of the session at its best batch; ``alone``: the
    server's throughput over the session's at the same batch."""

    spent: list[Spent] = field(default_factory=list)
    raw_us: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)

    def row(self, model: str, server: str, load: str) -> Row:
        def median(what: Callable[[Spent], float]) -> float:
            return statistics.median(what(spent) for spent in self.spent)

        total_us, raw_us = median(lambda spent: spent.total_us), statistics.median(self.raw_us)
        parts = {f"{part} µs": None for part in PARTS}
        if PARTS[0] in self.spent[0].cpu_us:
            parts = {f"{part} µs": median(lambda spent, part=part: spent.cpu_us[part]) for part in PARTS}
        has_model = server not in (Bare.name, BareGrpc.name)
        return {
            "model": model,
            "server": server,
            "load": load,
            "queries/s": median(lambda spent: spent.queries_s),
            "p50 ms": median(lambda spent: spent.outcome.p50_s * 1e3),
            "p99 ms": median(lambda spent: spent.outcome.p99_s * 1e3),
            "late": sum(spent.outcome.late for spent in self.spent),
            "batch": median(lambda spent: spent.batch) if all(spent.outcome.batches for spent in self.spent) else None,
            **parts,
            "server µs": total_us,
            "raw µs": raw_us if has_model else None,
            "raw/server": raw_us / total_us if has_model else None,
            "× alone": statistics.median(self.alone) if self.alone else None,
        }


def section(name: str, effort: Effort, against: Sequence[type[Mosec]] = ()) -> list[Row]:
    """The rows of one model.

    Raises:
        LoadError, StackError: a query failed, or a process did not start.
    """
    with tempfile.TemporaryDirectory(prefix="nereus-q-") as home, ExitStack() as running:
        folder = Path(home)
        model = MODELS[name](folder)
        effort = effort.of(model)
        core = min(os.sched_getaffinity(0))
        alone = Alone(model, core)
        stack = running.enter_context(Stack(folder, [model], {name: alone.profile(effort.alone_s)}))
        servers: list[Server] = [Nereus(stack, model)]
        if stack.grpc:
            servers.append(Nereus(stack, model, grpc=True))
        servers += [running.enter_context(rival(folder, model, core)) for rival in against]
        servers.append(running.enter_context(Bare(folder, model)))
        if stack.grpc:
            servers.append(running.enter_context(BareGrpc(folder, model)))
        generator = running.enter_context(Generator())
        return _rounds(model, effort, alone, servers, generator)


def _rounds(model: Model, effort: Effort, alone: Alone, servers: Sequence[Server], generator: Generator) -> list[Row]:
    found: dict[tuple[str, str], _Measured] = {}
    rate = 0.0
    for number in range(effort.rounds):
        raw_us = min(alone.cpu_us(batch, effort.alone_s) for batch in BATCHES)
        for load in ("closed, 8", "closed, 32", "open"):
            for server in servers:
                if load == "open":
                    if server is not servers[0]:
                        continue
                    mode = {"mode": "open", "connections": 32, "rate": rate, "seed": number}
                else:
                    mode = {"mode": "closed", "connections": int(load.split()[1])}
                asked = server.load(slo_s=model.slo_s, seconds=effort.seconds, warm_up=effort.warm_up, **mode)
                spent = generator.run(asked, server.cpu_s)
                if not rate:
                    rate = OPEN_SHARE * spent.queries_s
                measured = found.setdefault((server.name, load), _Measured())
                measured.spent.append(spent)
                measured.raw_us.append(raw_us)
                if load == "closed, 32" and server is servers[0]:
                    batch = max(1, min(max(BATCHES), round(spent.batch)))
                    measured.alone.append(spent.queries_s / alone.rows_s(batch, effort.alone_s))
    named = {"open": f"Poisson, {rate:,.0f}/s"}
    return [one.row(model.name, server, named.get(load, load)) for (server, load), one in sorted(found.items())]
