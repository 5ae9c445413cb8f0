"""The demo from its first start on: how queries and promises fare.

It shows ends of queries by minute, and how often promised intervals held. It starts an appliance as ``make demo`` does,
in a new home, and counts at its gateway from the first query of the demo's load on. Promises are made every few seconds
instead of minutes, so that there are enough of them to compare.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from scheduler.promises.intervals import FIGURES, Interval
from tools.child import RunningAppliance, eventually

from .figures import Row, heading, markdown

OUTCOMES = ("in_time", "late", "dropped", "failed")
#: seconds for the demo's variants to be measured, and between two promises
LONGEST_S, PROMISE_PERIOD_S = 1500.0, 15
LEAST_MINUTES, MOST_MINUTES = 1, 240


def counts(page: str) -> Counter[str]:
    """Queries by outcome, of all applications, of a page of the gateway's metrics."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        if family.name == "nereus_gateway_queries":
            for sample in family.samples:
                found[sample.labels["outcome"]] += int(sample.value)
    return found


def row(minute: int, ended: Counter[str]) -> Row:
    """A minute's queries; violations are those that were not answered in time."""
    total = sum(ended.values())
    shares = {outcome: ended[outcome] for outcome in OUTCOMES}
    return {"minute": str(minute), **shares, "violations %": 100 * (total - ended["in_time"]) / max(1, total)}


def held(promises: Sequence[dict[str, Any]]) -> list[Row]:
    """Count, by figure, the promised intervals and those that held.

    The promises are the newest hundred at most.
    """
    rows: list[Row] = []
    for figure in FIGURES:
        compared = [
            (Interval(*expected[figure]["interval"]), promise["observed"][name][figure])
            for promise in promises
            for name, expected in promise["expected"].items()
            if promise["observed"].get(name, {}).get(figure) is not None
        ]
        kept = sum(interval.holds(came) for interval, came in compared)
        rows.append({"figure": figure, "compared": len(compared), "held": kept})
    return rows


def _page(appliance: RunningAppliance) -> Counter[str]:
    token = appliance.credentials["api_token"]
    answer = httpx2.get(appliance.http + "/metrics", headers={"Authorization": f"Bearer {token}"}, timeout=60)
    answer.raise_for_status()
    return counts(answer.text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks first_start", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=15, help="of load (default: 15)")
    given = parser.parse_args(arguments)
    if not LEAST_MINUTES <= given.minutes <= MOST_MINUTES:
        parser.error(f"--minutes: must be from {LEAST_MINUTES} to {MOST_MINUTES}, not {given.minutes}")
    print(heading("The demo's first start", __doc__), flush=True)
    with tempfile.TemporaryDirectory(prefix="nereus-f-") as home:
        environment = {"NEREUS_PROMISE_PERIOD_S": str(PROMISE_PERIOD_S)}
        appliance = RunningAppliance(Path(home) / "home", "--demo", environment=environment)
        try:
            appliance.start()
            eventually(lambda: "load runs" in appliance.read(), LONGEST_S, 0.2, "the demo's load")
            began, before, rows = time.monotonic(), _page(appliance), []
            for minute in range(1, given.minutes + 1):
                time.sleep(max(0.0, began + 60 * minute - time.monotonic()))
                now = _page(appliance)
                rows.append(row(minute, now - before))
                before = now
            with appliance.rest() as rest:
                promises = rest.get("/promises/").raise_for_status().json()["results"]
        finally:
            appliance.stop()
    print(markdown(rows), markdown(held(promises)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
