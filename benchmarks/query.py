"""CPU time of a query: a tiny model, so that all cost is serving.

Whole appliances with one one-core device each, and mosec where wanted, take turns in rounds of closed loops. CPU time
is that of the server's processes over the queries answered meanwhile; every answer is checked, and one that is
missing, wrong or an error ends the run. *Together* is gateway and executor; the control plane's processes are listed
apart. *Busiest* is the busiest process of the gateway. Each of *idle* connections sends one query when it is opened and
one at the end, so that a connection that was lost meanwhile ends the run, too. Ratios are medians over rounds of the
ratio within a round, with the lowest and highest in parentheses.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from appliance.load.sender import Load
from benchmarks.generator import Generator, LoadError

from .figures import Row, heading, markdown, ratio
from .harness import Contender, Contending, Variant, add_contenders, between, contenders, started
from .models import tiny
from .mosec import Mosec

APPLICATION = "tiny"
SLO_MS = 1000.0
WARM_UP = 500
PROTOCOLS = ("http", "grpc")
#: microseconds of CPU time a query, as columns
PARTS = ("gateway", "executor", "together", "busiest", "control")
#: further columns: what clients saw, and the load
SEEN, LOAD = ("queries/s", "p50 ms", "p99 ms", "batch"), ("connections", "idle", "protocol")


#: A load on one server: by part, microseconds of CPU time a query; by column, what clients saw.
Spent = dict[str, float]


class Server(NamedTuple):
    """A server to be measured.

    Attributes:
        load: makes a load of (connections, idle ones, protocol).
        cpu_s: returns seconds of CPU time so far, by part.
    """

    name: str
    protocols: Sequence[str]
    load: Callable[[int, int, str], Load]
    cpu_s: Callable[[], dict[str, float]]


#: by ((connections, idle ones, protocol), server's name): each round
Found = dict[tuple[tuple[int, int, str], str], list[Spent]]


def spend(generator: Generator, load: Load, cpu_s: Callable[[], dict[str, float]]) -> Spent:
    before: dict[str, float] = {}
    records, summary = generator.run(load, SLO_MS / 1e3, lambda: before.update(cpu_s()))
    after = cpu_s()
    answered = int(np.count_nonzero(records.answered))
    if answered < len(records) or summary.idle_lost or not answered:
        raise LoadError(f"of {len(records)} queries {answered} were answered: {records.ends()} {summary.notes[:3]}")
    us = {name: (after[name] - before[name]) / answered * 1e6 for name in after}
    us["together"] = us["gateway"] + us["executor"] if "gateway" in us else sum(us.values())
    if "gateway" in us:
        us["busiest"] = max(value for name, value in us.items() if name.startswith("gateway "))
    batches = records.rows["batch"]
    return {
        **us,
        "queries/s": answered / summary.seconds,
        "p50 ms": records.latency_ms(0.5),
        "p99 ms": records.latency_ms(0.99),
        "batch": float(1 / np.mean(1 / batches)) if (batches > 0).all() else float("nan"),
    }


def measure(servers: Sequence[Server], loads: Sequence[tuple[int, int, str]], rounds: int) -> Found:
    found: Found = {}
    with Generator() as generator:
        for number in range(rounds):
            for load in loads:
                asked = [server for server in servers if load[2] in server.protocols]
                # Each round begins with another server.
                first = number % len(asked)
                for server in [*asked[first:], *asked[:first]]:
                    spent = spend(generator, server.load(*load), server.cpu_s)
                    found.setdefault((load, server.name), []).append(spent)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


# --- the page ---------------------------------------------------------------------------------------------------------


def costs(found: Found) -> list[Row]:
    rows: list[Row] = []
    for (load, name), rounds in sorted(found.items()):
        row = {**dict(zip(LOAD, load, strict=True)), "server": name}
        for part in PARTS:
            row[f"{part} µs"] = median(one[part] for one in rounds) if part in rounds[0] else None
        for column in SEEN:
            row[column] = median(one[column] for one in rounds)
        rows.append(row)
    return rows


def ratios(found: Found, first: str) -> list[Row]:
    """Return a row for each load and server, of its parts over the first server's.

    All parts together are also compared with mosec's, whose own loads have no row.
    """
    rows: list[Row] = []
    for (load, name), rounds in sorted(found.items()):
        if name == Mosec.name:
            continue
        row: dict[str, object] = {**dict(zip(LOAD, load, strict=True)), "server": name}
        for part in PARTS[:4]:
            row[f"{part}, over {first}"] = _ratio(rounds, found[load, first], part) if name != first else ""
        # mosec has no gRPC of V2: its HTTP is the reference for both.
        mosec = found.get(((*load[:2], "http"), Mosec.name))
        if mosec:
            row[f"together, over {Mosec.name}"] = _ratio(rounds, mosec, "together")
        rows.append(row)
    return rows


def _ratio(ours: Sequence[Spent], theirs: Sequence[Spent], part: str) -> str:
    return ratio([one[part] for one in ours], [one[part] for one in theirs])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks query", description=__doc__.splitlines()[0])
    add_contenders(parser)
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--seconds", type=between(0.1, 600.0), default=3.0, help="of each load (default: 3)")
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 32], help="default: 8 32")
    parser.add_argument("--idle", type=int, nargs="+", default=[0], help="idle connections beside (default: 0)")
    parser.add_argument("--protocols", choices=PROTOCOLS, nargs="+", default=PROTOCOLS, help="default: http grpc")
    parser.add_argument("--tls", action="store_true", help="each of them without TLS and with TLS")
    parser.add_argument("--mosec", metavar="PYTHON", help="compare with the mosec of this interpreter")
    parser.add_argument("--mosec-batch", type=int, default=16, help="of mosec, rows at most (default: 16)")
    given = parser.parse_args(arguments)
    print(heading("A query", __doc__), flush=True)
    options = {"closed_s": given.seconds, "warm_up": WARM_UP, "patience_s": 30.0}
    loads = list(itertools.product(given.connections, given.idle, given.protocols))
    compared = contenders(given)
    with started(_with_tls(compared) if given.tls else compared) as (appliances, folder), ExitStack() as stack:
        model = tiny(folder)
        servers = [_server(one, [Variant("only", model, 90.0)], options) for one in appliances]
        if given.mosec:
            mosec = stack.enter_context(Mosec(given.mosec, folder, model, given.mosec_batch))
            servers.append(Server(mosec.name, PROTOCOLS[:1], partial(mosec.load, options), mosec.cpu_s))
        found = measure(servers, loads, given.rounds)
    print(markdown(costs(found)), end="\n\n")
    print(markdown(ratios(found, servers[0].name)))
    return 0


def _with_tls(plain: Sequence[Contender]) -> list[Contender]:
    encrypted = [Contender(f"{one.name}, TLS", one.tree, {**one.environment, "NEREUS_TLS": "on"}) for one in plain]
    return [one for pair in zip(plain, encrypted, strict=True) for one in pair]


def _server(appliance: Contending, variants: Sequence[Variant], options: dict) -> Server:
    appliance.register(APPLICATION, SLO_MS, variants)

    def load(count: int, idle: int, protocol: str) -> Load:
        return appliance.load(APPLICATION, variants, protocol == "grpc", connections=count, idle=idle, **options)

    return Server(appliance.name, PROTOCOLS, load, appliance.cpu_s)
