"""Clients beside an attacker: what one at each limit takes from 64 honest clients.

Honest clients send queries of one row at a fixed rate, over 64 connections, while one attacker does its worst; rounds
with and without it take turns. Goodput is queries answered in time per second; each ratio is the median over rounds of
the round with the attacker over the one before it, with the lowest and highest in parentheses. Attackers are bounded;
their own processor time is taken from the same machine, and given as cores.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.load.sender import Phase
from benchmarks.load.driver import Generator, LoadError
from tools.child import ROOT

from .attackers import ATTACKERS
from .figures import Row, heading, markdown
from .harness import Contender, Contending, Variant, between, started
from .models import tiny

APPLICATION = "tiny"
SLO_MS = 200.0
CLIENTS = 64
#: a round's goodput and p99 are to stay within this part of the one before it
WITHIN = 0.1


@dataclass(frozen=True)
class Round:
    """The service that honest clients got in one round.

    Attributes:
        goodput: answers in time, per second.
        p99_ms: 99th percentile of latency.
        untold: queries without a right answer or a refusal.
    """

    goodput: float
    p99_ms: float
    untold: int


@dataclass(frozen=True)
class Pair:
    """A round without and one with an attacker.

    Attributes:
        made: requests or connections that the attacker made.
        cores: CPU cores that it took.
    """

    without: Round
    beside: Round
    made: int
    cores: float


class Bench:
    def __init__(self, appliance: Contending, folder: Path, generator: Generator, rate: float, seconds: float):
        self._appliance, self._generator = appliance, generator
        self._file = folder / "rows.npy"
        self._variants = [Variant("only", tiny(folder), 90.0)]
        self._rate, self._seconds = rate, seconds
        appliance.register(APPLICATION, SLO_MS, self._variants)

    def honest(self) -> Round:
        phases = [Phase(self._seconds, self._rate)]
        load = self._appliance.load(
            APPLICATION, self._variants, self._file, connections=CLIENTS, phases=phases, warm_up=CLIENTS
        )
        records, _ = self._generator.run(load, SLO_MS / 1e3)
        return Round(int(np.count_nonzero(records.in_time)) / self._seconds, records.latency_ms(0.99), records.untold)

    def pair(self, name: str) -> Pair:
        without = self.honest()
        appliance = self._appliance
        ports = [url.rpartition(":")[2] for url in (appliance.http, appliance.grpc)]
        key, path = appliance.credentials["api_key"], f"/v2/models/{APPLICATION}/infer"
        # Longer than the round, which begins once the attacker is at work.
        seconds = str(self._seconds + 3.0)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "benchmarks.attackers", name, *ports, key, path, seconds]
        attacker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            attacker_ready(attacker)
            beside = self.honest()
            made = int(attacker.communicate(timeout=60)[0])
        finally:
            attacker.kill()
            attacker.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Pair(without, beside, made, spent / float(seconds))


def attacker_ready(attacker: subprocess.Popen, seconds: float = 1.5) -> None:
    """Give the attacker time to begin. Raises LoadError if it ends already."""
    try:
        attacker.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise LoadError(f"the attacker has ended with status {attacker.returncode}")


def row(name: str, pairs: Sequence[Pair]) -> Row:
    goodput = [pair.beside.goodput / pair.without.goodput for pair in pairs]
    p99 = [pair.beside.p99_ms / pair.without.p99_ms for pair in pairs]
    return {
        "attack": name,
        "made/round": statistics.median(pair.made for pair in pairs),
        "its cores": statistics.median(pair.cores for pair in pairs),
        "goodput/s without": statistics.median(pair.without.goodput for pair in pairs),
        "p99 ms without": statistics.median(pair.without.p99_ms for pair in pairs),
        "goodput ratio": _ratio(goodput),
        "p99 ratio": _ratio(p99),
        "untold": sum(pair.without.untold + pair.beside.untold for pair in pairs),
        "within 10 %": "yes"
        if statistics.median(goodput) >= 1 - WITHIN and statistics.median(p99) <= 1 + WITHIN
        else "no",
    }


def _ratio(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        1: a query was lost or answered wrongly, or a process did not run. 0 otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks attack", description=__doc__.splitlines()[0])
    parser.add_argument("--attacks", nargs="+", choices=ATTACKERS, default=list(ATTACKERS), metavar="NAME")
    parser.add_argument("--rounds", type=int, choices=range(1, 101), default=3, metavar="N")
    parser.add_argument("--seconds", type=between(1.0, 600.0), default=5.0, help="of a round (default: 5)")
    parser.add_argument("--rate", type=between(1.0, 1e5), default=300.0, help="honest queries/s (default: 300)")
    given = parser.parse_args(arguments)
    print(heading("Clients beside an attacker", __doc__), flush=True)
    contender = Contender("this", ROOT, {})
    found: dict[str, list[Pair]] = {name: [] for name in given.attacks}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="nereus-a-") as home,
            started([contender], Path(home)) as (appliance,),
            Generator() as generator,
        ):
            bench = Bench(appliance, Path(home), generator, given.rate, given.seconds)
            bench.honest()
            for _ in range(given.rounds):
                for name in given.attacks:
                    found[name].append(bench.pair(name))
    except (LoadError, RuntimeError, OSError, ValueError) as error:
        print(f"attack: {error}", file=sys.stderr)
        return 1
    rows = [row(name, pairs) for name, pairs in found.items()]
    print(markdown(rows), flush=True)
    return int(any(one["untold"] for one in rows))
