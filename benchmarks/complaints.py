"""Three complaints of other servers' users, measured here.

- *Long batch* (Triton server #7512): while batches of an application with a long SLO fill the only device, queries of
  one with a short SLO are answered or refused by their deadline. Figures: how those that got no answer ended, and the
  times until clients knew.
- *Timeouts* (Triton server #8870): minutes of clients that give up long before their answer, each time anew. Figures:
  queries/s answered afterwards over those before, the median of rounds, and how much memory the gateway grew.
- *Scraper* (Triton server #8561): processor time a query while metrics are fetched each second, over that without; the
  median of pairs of rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from appliance.load.records import Records
from appliance.load.sender import Phase
from benchmarks.load.driver import Generator, LoadError
from tools.child import ROOT

from .contenders import Appliance, Contender, Variant, between, started
from .figures import Row, heading, markdown
from .models import Model, resnet18, tiny

#: applications, and their SLOs in ms: one whose batches take seconds, and one that cannot wait for them
LONG, LONG_MS, SHORT, SHORT_MS = "long", 20_000.0, "short", 100.0
#: clients that keep the device busy with long batches, and queries/s of the short application
LONG_CLIENTS, SHORT_RATE = 64, 50.0
#: seconds after which clients give up: less than the long model's smallest batch takes
GIVES_UP_S = 0.005
#: the least throughput after timeouts over that before, and the most processor time with a scraper over that without
THROUGHPUT, SCRAPED = 0.98, 1.02
#: a client's own delay in noticing an end, in seconds
NOTICED_S = 0.01
CLIENTS, RATE = 16, 300.0


@dataclass
class Bench:
    """A running appliance with both applications."""

    appliance: Appliance
    folder: Path
    generator: Generator

    def __post_init__(self) -> None:
        self._variants = {name: [Variant("only", model, 90.0)] for name, model in self._models().items()}
        for name, slo_ms in ((LONG, LONG_MS), (SHORT, SHORT_MS)):
            self.appliance.register(name, slo_ms, self._variants[name])

    def _models(self) -> dict[str, Model]:
        return {LONG: resnet18(self.folder), SHORT: tiny(self.folder)}

    def run(self, name: str, generator: Generator | None = None, **load) -> Records:
        """One load of an application."""
        file = self.folder / f"{name}.npy"
        given = self.appliance.load(name, self._variants[name], file, cores=self.appliance.away(), **load)
        slo_ms = LONG_MS if name == LONG else SHORT_MS
        return (generator or self.generator).run(given, slo_ms / 1e3)[0]

    def throughput(self, seconds: float) -> float:
        """Answers/s of the long application to a closed loop."""
        records = self.run(LONG, connections=CLIENTS, closed_s=seconds)
        return int(np.count_nonzero(records.in_time & (records.rows["ended"] < seconds))) / seconds

    async def give_up(self, seconds: float) -> int:
        """Run clients that ask the long application and leave at once, for so long.

        Returns:
            How many queries they sent.
        """
        load = self.appliance.load(LONG, self._variants[LONG], self.folder / "unused.npy", connections=1)
        until, sent = time.monotonic() + seconds, 0

        async def client() -> None:
            nonlocal sent
            while time.monotonic() < until:
                _, writer = await asyncio.open_connection("127.0.0.1", load.port)
                writer.write(load.requests[sent % len(load.requests)])
                await writer.drain()
                sent += 1
                await asyncio.sleep(GIVES_UP_S)
                writer.transport.abort()

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return sent

    def gateway_mib(self) -> float:
        """Memory of the gateway's processes."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self.appliance.pids("gateway")) / 2**20


def long_batch(bench: Bench, given: argparse.Namespace) -> Row:
    """Queries with a short SLO beside long batches."""
    with Generator() as other:
        busy = threading.Thread(
            target=bench.run, args=(LONG, other), kwargs={"connections": LONG_CLIENTS, "closed_s": given.seconds + 5.0}
        )
        busy.start()
        records = bench.run(SHORT, connections=8, phases=[Phase(given.seconds, SHORT_RATE)])
        busy.join()
    refused = ~records.answered & (records.rows["status"] > 0)
    took_ms = records.took_s[refused] * 1e3 if refused.any() else np.zeros(1)
    known_ms, longest_ms = float(np.percentile(took_ms, 99)), float(np.max(took_ms))
    return {
        "complaint": "long batch",
        "measured": f"{len(records)} queries: {int(np.count_nonzero(records.in_time))} in time, {records.late} late, "
        f"{int(np.count_nonzero(refused))} refused; 99% of refusals came within {known_ms:.0f} ms, the last after "
        f"{longest_ms:.0f} ms, of {SHORT_MS:.0f}",
        "kept": _kept(known_ms <= SHORT_MS + NOTICED_S * 1e3 and not records.untold),
    }


def timeouts(bench: Bench, given: argparse.Namespace) -> Row:
    """Throughput before and after minutes of clients that give up."""
    before = [bench.throughput(given.seconds) for _ in range(given.rounds)]
    held = bench.gateway_mib()
    gave_up = asyncio.run(bench.give_up(given.minutes * 60.0))
    after = [bench.throughput(given.seconds) for _ in range(given.rounds)]
    ratio = statistics.median(after) / statistics.median(before)
    return {
        "complaint": "timeouts",
        "measured": f"{gave_up} queries given up in {given.minutes:g} minutes; {statistics.median(before):.1f}/s "
        f"before, {statistics.median(after):.1f}/s after ({ratio:.3f}); gateway {bench.gateway_mib() - held:+.1f} MiB",
        "kept": _kept(ratio >= THROUGHPUT),
    }


def scraper(bench: Bench, given: argparse.Namespace) -> Row:
    """Processor time a query with and without somebody who fetches metrics."""
    ratios = []
    for number in range(given.rounds):
        # In turns, so that a machine that gets slower meanwhile favours neither.
        order = (False, True) if number % 2 else (True, False)
        costs = {scraped: _cost_us(bench, given.seconds, scraped) for scraped in order}
        ratios.append(costs[True] / costs[False])
    ratio = statistics.median(ratios)
    return {
        "complaint": "scraper",
        "measured": f"{ratio:.3f} of the processor time a query ({min(ratios):.3f} to {max(ratios):.3f})",
        "kept": _kept(ratio <= SCRAPED),
    }


def _cost_us(bench: Bench, seconds: float, scraped: bool) -> float:
    """Microseconds of the data plane's processor time a query."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            urllib.request.urlopen(bench.appliance.http + "/metrics", timeout=10).read()

    before, fetching = bench.appliance.cpu_s(), threading.Thread(target=scrape)
    if scraped:
        fetching.start()
    try:
        records = bench.run(SHORT, connections=CLIENTS, phases=[Phase(seconds, RATE)])
    finally:
        over.set()
    if scraped:
        fetching.join()
    after = bench.appliance.cpu_s()
    return sum(after[role] - before[role] for role in ("gateway", "executor")) / len(records) * 1e6


def _kept(good: bool) -> str:
    return "yes" if good else "no"


COMPLAINTS: dict[str, Callable[[Bench, argparse.Namespace], Row]] = {
    "long-batch": long_batch,
    "timeouts": timeouts,
    "scraper": scraper,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1: it could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks complaints", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=COMPLAINTS, default=list(COMPLAINTS), metavar="NAME")
    parser.add_argument("--rounds", type=int, choices=range(1, 101), default=5, metavar="N")
    parser.add_argument("--seconds", type=between(1.0, 600.0), default=20.0, help="of a round (default: 20)")
    parser.add_argument("--minutes", type=between(0.05, 600.0), default=3.0, help="of timeouts (default: 3)")
    given = parser.parse_args(arguments)
    print(heading("Complaints", __doc__), flush=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="nereus-c-") as home,
            started([Contender("this", ROOT, {})], Path(home)) as (appliance,),
            Generator() as generator,
        ):
            bench = Bench(appliance, Path(home), generator)
            print(markdown([COMPLAINTS[name](bench, given) for name in given.only]), flush=True)
    except (LoadError, RuntimeError, OSError, ValueError) as error:
        print(f"complaints: {error}", file=sys.stderr)
        return 1
    return 0
