"""The demo's load live: violations and accuracy through waves and bursts.

Each appliance serves the demo's two applications on two one-core devices. They take turns with the same load, whose
rates come from the first one's profiles. Violations are counted strictly at the client: answers after the SLO,
refusals, failures and queries that could not be sent. *Busiest* is the CPU time a query of the gateway's busiest
process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

from appliance.demo import register
from appliance.demo.capacity import measured
from appliance.demo.manifest import applications
from appliance.demo.traffic import replay

from .figures import Row, heading, markdown
from .harness import Contending, add_contenders, between, contenders, started, turns

DEVICES = "2x1"
READY_S = 600.0


def _row(appliance: Contending, number: int, seconds: float, capacities) -> Row:
    before = appliance.cpu_s()
    counts = replay(appliance.http, appliance.credentials["api_key"], seconds, capacities, seed=number)["total"]
    after = appliance.cpu_s()
    spent = {name: (after[name] - before[name]) / max(1, counts["sent"]) * 1e6 for name in after}
    return {
        "round": str(number + 1),
        "server": appliance.name,
        "queries": counts["sent"],
        "late": counts["late"],
        "refused": counts["refused"],
        "failed": counts["failed"] + counts["unsent"],
        "violations %": 100 * (counts["violation_ratio"] or 0.0),
        "accuracy %": counts["effective_accuracy"] or 0.0,
        "gateway µs": spent["gateway"],
        "busiest µs": max(value for name, value in spent.items() if name.startswith("gateway ")),
        "variants": ", ".join(f"{name} {count}" for name, count in counts["variants"].items()),
    }


def medians(rows: Sequence[Row]) -> list[Row]:
    figures = ("violations %", "accuracy %", "gateway µs", "busiest µs")
    servers = dict.fromkeys(row["server"] for row in rows)
    return [
        {"server": name} | {one: median(row[one] for row in rows if row["server"] == name) for one in figures}
        for name in servers
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks demo", description=__doc__.splitlines()[0])
    add_contenders(parser)
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--seconds", type=between(1.0, 3600.0), default=120.0, help="of each replay (default: 120)")
    given = parser.parse_args(arguments)
    print(heading("The demo's load", __doc__), flush=True)
    rows: list[Row] = []
    with started(contenders(given, NEREUS_CPU_DEVICES=DEVICES)) as (appliances, _):
        for appliance in appliances:
            token = appliance.credentials["api_token"]
            register.register(appliance.console, token, lambda _: None)
            register.wait_ready(appliance.console, token, READY_S)
            appliance.find_processes()
        first = appliances[0]
        capacities = measured(first.console, first.credentials["api_token"], applications())
        for number in range(given.rounds):
            for appliance in turns(appliances, number):
                rows.append(_row(appliance, number, given.seconds, capacities))
                print(markdown(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(markdown(rows), markdown(medians(rows)), sep="\n\n")
    return 0
