"""Clients beside an attacker: what one at each limit takes from 64 honest clients.

Honest clients send queries of one row at a fixed rate, over 64 connections, while one attacker does its worst; rounds
with and without it take turns. Goodput is queries answered in time per second; each ratio is the median over rounds of
the round with the attacker over the one before it, with the lowest and highest in parentheses. Attackers are bounded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from appliance.load.sender import Phase
from benchmarks.generator import Generator, LoadError
from tools.child import ROOT

from .attackers import ATTACKERS
from .figures import Row, heading, markdown, ratio
from .harness import Contender, Contending, Variant, between, started
from .models import tiny

APPLICATION = "tiny"
SLO_MS = 200.0
CLIENTS = 64
#: seconds for an attacker to begin
BEGUN_S = 1.5


class Round(NamedTuple):
    """The service that honest clients got: answers in time a second, p99 in ms, and queries without a right end."""

    goodput: float
    p99_ms: float
    untold: int


#: a round without and one with an attacker, and the requests or connections that this made
Pair = tuple[Round, Round, int]


class Bench:
    def __init__(self, appliance: Contending, folder: Path, generator: Generator, rate: float, seconds: float):
        self._appliance, self._generator = appliance, generator
        self._variants = [Variant("only", tiny(folder), 90.0)]
        self._rate, self._seconds = rate, seconds
        appliance.register(APPLICATION, SLO_MS, self._variants)

    def honest(self) -> Round:
        given = {"connections": CLIENTS, "phases": [Phase(self._seconds, self._rate)], "warm_up": CLIENTS}
        load = self._appliance.load(APPLICATION, self._variants, **given)
        records, _ = self._generator.run(load, SLO_MS / 1e3)
        return Round(int(np.count_nonzero(records.in_time)) / self._seconds, records.latency_ms(0.99), records.untold)

    def pair(self, name: str) -> Pair:
        without = self.honest()
        appliance = self._appliance
        ports = [url.rpartition(":")[2] for url in (appliance.http, appliance.grpc)]
        key, path = appliance.credentials["api_key"], f"/v2/models/{APPLICATION}/infer"
        # Longer than the round, which begins once the attacker is at work.
        seconds = str(self._seconds + 2 * BEGUN_S)
        command = [sys.executable, "-m", "benchmarks.attackers", name, *ports, key, path, seconds]
        attacker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            attacker.wait(BEGUN_S)
            raise LoadError(f"the attacker has ended with status {attacker.returncode}")
        except subprocess.TimeoutExpired:
            return without, self.honest(), int(attacker.communicate(timeout=60)[0])
        finally:
            attacker.kill()
            attacker.wait()


def row(name: str, pairs: Sequence[Pair]) -> Row:
    without, beside, made = zip(*pairs, strict=True)
    return {
        "attack": name,
        "made/round": median(made),
        "goodput/s without": median(one.goodput for one in without),
        "p99 ms without": median(one.p99_ms for one in without),
        "goodput ratio": ratio([one.goodput for one in beside], [one.goodput for one in without]),
        "p99 ratio": ratio([one.p99_ms for one in beside], [one.p99_ms for one in without]),
        "untold": sum(one.untold for one in (*without, *beside)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks attack", description=__doc__.splitlines()[0])
    parser.add_argument("--attacks", nargs="+", choices=ATTACKERS, default=list(ATTACKERS), metavar="NAME")
    parser.add_argument("--rounds", type=int, choices=range(1, 101), default=3, metavar="N")
    parser.add_argument("--seconds", type=between(1.0, 600.0), default=5.0, help="of a round (default: 5)")
    parser.add_argument("--rate", type=between(1.0, 1e5), default=300.0, help="honest queries/s (default: 300)")
    given = parser.parse_args(arguments)
    print(heading("Clients beside an attacker", __doc__), flush=True)
    found: dict[str, list[Pair]] = {name: [] for name in given.attacks}
    with started([Contender("this", ROOT, {})]) as ((appliance,), folder), Generator() as generator:
        bench = Bench(appliance, folder, generator, given.rate, given.seconds)
        bench.honest()
        for _ in range(given.rounds):
            for name in given.attacks:
                found[name].append(bench.pair(name))
    rows = [row(name, pairs) for name, pairs in found.items()]
    print(markdown(rows), flush=True)
    return int(any(one["untold"] for one in rows))
