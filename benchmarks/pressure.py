"""Overload: three times the load that the appliance can answer; ``soak``: a share of it for long.

An appliance with one one-core device serves an application with three variants of different cost and accuracy within
200 ms. Capacity is what a closed loop gets answered in time of an application with nothing but the least accurate
variant, before and after, so that a machine that changes meanwhile shows. Then, in one open loop (Poisson), half of
that capacity, three times it, and half of it again; a soak offers 70% of it all the time. Queries come from a process
of their own, away from the executor's core, and count from when they were due, whether or not the generator was in time
to send them. The clients' counts of how queries ended are compared with the gateway's own counters. Growth of memory,
threads and descriptors beyond those of clients' connections is the Theil-Sen slope; a soak's first fifth, at most a
minute, is warming up.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from appliance.load.records import Records
from appliance.load.sender import Load, Phase
from benchmarks.generator import Generator, LoadError, Summary

from .figures import Row, heading, markdown
from .growth import Limit, Verdict, growth
from .harness import Contending, Variant, add_contenders, between, contenders, started
from .models import convolutions
from .watch import Watch

SLO_S = 0.2
#: accuracy in percent by variant, least accurate first
VARIANTS = {"fast": 76.0, "medium": 84.0, "slow": 90.0}
#: widths of a kind's variants; small ones are profiled soon
KINDS = {"cnn": (1.0, 1.6, 2.5), "small": (0.25, 0.4, 0.6)}
#: the application that is pressed, and one with the least accurate variant alone, which measures capacity
PRESSED, FASTEST = "pressed", "fastest"
PROCESSES = ("gateway", "executor")
#: connections that saturate the device, and those opened before an open loop, which opens more where it needs them
SATURATING, CONNECTIONS = 32, 128
CAPACITY_S = 10.0
#: of capacity: the load before and after, in the burst, and of a soak
BESIDE, BURST, SOAK = 0.5, 3.0, 0.7
#: goodput in the burst over capacity, at least; share of the SLO within which a refusal must come
GOODPUT, AT_ONCE = 0.95, 0.25
#: seconds of one plan period, in which the tail must have recovered
PLAN_PERIOD_S = 10.0
WARMING_S, WARMING_SHARE = 60.0, 0.2
LIMITS = {
    "memory": Limit(0.03, 4.0, "MiB"),
    "descriptors": Limit(0.0, 1.0, ""),
    "threads": Limit(0.0, 0.5, ""),
    "queue time": Limit(0.2, 2.0, "ms"),
}


@dataclass(frozen=True)
class Run:
    """A watched load.

    Attributes:
        parts: name, start and end of each row of the table, in seconds of the load.
        capacities: queries/s before and after.
        counted: queries by how they ended, by the gateway's own counters.
    """

    parts: Sequence[tuple[str, float, float]]
    capacities: tuple[float, float]
    records: Records
    summary: Summary
    watch: Watch
    counted: dict[str, int]

    def row(self, name: str, start: float, end: float) -> Row:
        """Queries due between two moments of the load; memory and cores in use then."""
        some, began = self.records.between(start, end), self.summary.began
        ended = self.records.rows["ended"]
        in_time = np.count_nonzero(self.records.in_time & (ended >= start) & (ended < end))
        variants = some.variants(list(VARIANTS))
        return {
            "": name,
            "queries": len(some),
            "offered/s": len(some) / (end - start),
            "in time/s": float(in_time) / (end - start),
            "late": some.late,
            "refused": int(np.count_nonzero(some.refused)),
            "other": len(some) - int(np.count_nonzero(some.answered | some.refused)),
            "p50 ms": some.latency_ms(0.5),
            "p99 ms": some.latency_ms(0.99),
            "accuracy %": sum(VARIANTS[one] * n for one, n in variants.items()) / max(1, sum(variants.values())),
            **{f"{one} MiB": self.watch.at(one, began + (start + end) / 2).memory for one in PROCESSES},
            **{f"{one} cores": self.watch.cores(one, began + start, began + end) for one in PROCESSES},
        }

    def verdicts(self) -> list[Verdict]:
        ends, total = self.records.ends() or "none", sum(self.counted.values())
        sent = f"the gateway counted {total} queries ({self.counted}), clients sent {len(self.records)}"
        return [
            (not self.records.untold, f"{self.records.untold} queries were lost or answered wrongly, of {ends}"),
            (total == len(self.records), sent),
            (not self.watch.failed, f"processes could be watched {self.watch.failed}".strip()),
        ]

    def grown(self, start: float, end: float, *names: str) -> list[Verdict]:
        found = []
        for process in PROCESSES:
            began = self.summary.began
            samples = [one for one in self.watch.samples[process] if began + start <= one.at <= began + end]
            moments = np.array([one.at for one in samples])
            for name in names:
                values = np.array([getattr(one, name) for one in samples], float)
                found.append(growth(f"{process}: {name}", LIMITS[name], moments, values))
        return found


class Pressed:
    def __init__(self, appliance: Contending, folder: Path, kind: str, grpc: bool, generator: Generator):
        self._appliance, self._generator = appliance, generator
        self._grpc = grpc
        self._variants = [
            Variant(name, convolutions(folder, name, width), accuracy)
            for (name, accuracy), width in zip(VARIANTS.items(), KINDS[kind], strict=True)
        ]
        appliance.register(FASTEST, SLO_S * 1e3, self._variants[:1])
        appliance.register(PRESSED, SLO_S * 1e3, self._variants)

    def _load(self, application: str, **given: Any) -> Load:
        cores = self._appliance.away()
        return self._appliance.load(application, self._variants, self._grpc, cores=cores, **given)

    def capacity(self, seconds: float) -> float:
        """Queries/s of a closed loop that are answered in time."""
        load = self._load(FASTEST, connections=SATURATING, closed_s=seconds)
        records, _ = self._generator.run(load, SLO_S)
        in_time = records.in_time & (records.rows["ended"] < seconds)
        if not in_time.any():
            raise LoadError("not one query was answered in time where capacity was measured")
        return int(np.count_nonzero(in_time)) / seconds

    def run(self, parts: Sequence[tuple[str, float, float]], every_s: float, trial_s: float) -> Run:
        """Carry out a load of (name, seconds, share of the capacity) one after the other, and watch the processes.

        Raises:
            LoadError, RuntimeError: the load generator failed, or a process ended.
        """
        first, before = self.capacity(trial_s), {}
        phases = [Phase(seconds, share * first) for _, seconds, share in parts]
        pids = {role: self._appliance.pids(role)[0] for role in PROCESSES}
        load = self._load(PRESSED, connections=CONNECTIONS, phases=phases, patience_s=30.0)
        with Watch(pids, every_s) as watch:
            records, summary = self._generator.run(load, SLO_S, lambda: before.update(self._counted()))
        after = self._counted()
        self._appliance.cpu_s()
        ends = np.cumsum([seconds for _, seconds, _ in parts]).tolist()
        spans = [(name, end - seconds, end) for (name, seconds, _), end in zip(parts, ends, strict=True)]
        counts = {name: after[name] - before.get(name, 0) for name in after}
        return Run(spans, (first, self.capacity(trial_s)), records, summary, watch, counts)

    def _counted(self) -> dict[str, int]:
        text = httpx2.get(f"{self._appliance.http}/metrics", timeout=10).text
        ended = rf'^nereus_gateway_queries_total\{{application="{PRESSED}",outcome="([^"]+)"\}} (\S+)$'
        return {outcome: int(float(count)) for outcome, count in re.findall(ended, text, re.MULTILINE)}


# --- a burst ----------------------------------------------------------------------------------------------------------


def burst(pressed: Pressed, given: argparse.Namespace) -> tuple[Run, list[Verdict]]:
    before, after, trial = (min(most, max(1.0, given.seconds / 4)) for most in (15.0, 20.0, CAPACITY_S))
    quarters = [(f"burst, quarter {i + 1}", given.seconds / 4, BURST) for i in range(4)]
    parts = [("before", before, BESIDE), *quarters, ("after", after, BESIDE)]
    run = pressed.run(parts, min(1.0, given.seconds / 12), trial)
    start, end = before, before + given.seconds
    during, row = run.records.between(start, end), run.row("burst", start, end)
    ratio = row["in time/s"] / (sum(run.capacities) / 2)
    refused_ms, back_s = during.refusal_ms(0.99), recovered_s(run, start, end)
    return run, [
        (ratio >= GOODPUT, f"goodput in the burst is {ratio:.3f} of capacity (at least {GOODPUT})"),
        (not during.without_retry(), f"{during.without_retry()} refusals do not say when to retry"),
        (refused_ms <= AT_ONCE * SLO_S * 1e3, f"99% of refusals took at most {refused_ms:.1f} ms"),
        (back_s <= PLAN_PERIOD_S, f"the p99 latency is as before {back_s:.2f} s after the burst"),
        *run.grown(start, end, "memory"),
    ]


def recovered_s(run: Run, start: float, end: float, window_s: float = 1.0) -> float:
    """Seconds after the burst from which on latency is as before, or infinity.

    As before: the p99 of all that follows is within that of the worst window before, and the share without an answer is
    at most one percent larger.
    """
    before, over = run.records.between(0.0, start), run.parts[-1][2]
    windows = [before.between(at, at + window_s) for at in np.arange(0.0, start - window_s + 1e-9, window_s)]
    p99_ms = max((some.latency_ms(0.99) for some in windows if some.answered.any()), default=0.0)
    missed = 0.01 + _missed(before)
    for at in np.arange(end, over - window_s + 1e-9, window_s / 4):
        rest = run.records.between(at, float("inf"))
        if rest.latency_ms(0.99) <= p99_ms and _missed(rest) <= missed:
            return float(at - end)
    return float("inf")


def _missed(records: Records) -> float:
    return float(np.count_nonzero(~records.answered)) / max(1, len(records))


# --- a soak -----------------------------------------------------------------------------------------------------------


def long(pressed: Pressed, given: argparse.Namespace) -> tuple[Run, list[Verdict]]:
    count = max(4, round(given.seconds / 60))
    parts = [(f"part {i + 1}", given.seconds / count, given.load) for i in range(count)]
    run = pressed.run(parts, min(1.0, given.seconds / 60), min(CAPACITY_S, given.seconds / 10))
    return run, soaked(run, given.seconds)


def soaked(run: Run, seconds: float) -> list[Verdict]:
    span = min(WARMING_S, WARMING_SHARE * seconds), seconds
    some = run.records.between(*span)
    answers = some.rows[some.answered]
    queues = growth("queue time", LIMITS["queue time"], answers["due"], answers["queue_ms"])
    return [*run.grown(*span, "memory", "descriptors", "threads"), queues]


def page(run: Run, verdicts: Sequence[Verdict]) -> str:
    first, last = run.capacities
    cores = run.summary.cpu_s / run.summary.seconds
    about = f"Capacity before and after: {first:.0f} and {last:.0f} queries/s. Without an answer: "
    about += f"{run.records.ends() or 'none'}. Queries were sent {run.records.lateness_ms(0.99):.2f} ms late (p99), on "
    about += f"{run.summary.connections} connections at most, by {cores:.2f} cores."
    lines = [f"- {'holds' if holds else '**does not hold**'}: {text}" for holds, text in verdicts]
    return "\n\n".join([about, markdown([run.row(*part) for part in run.parts]), "\n".join(lines)])


def main(arguments: Sequence[str] | None = None, name: str = "pressure") -> int:
    soak = name == "soak"
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=__doc__.splitlines()[0])
    add_contenders(parser, gateways=False)
    usual = 900.0 if soak else 60.0
    parser.add_argument(
        "--seconds", type=between(1.0, 86_400.0), default=usual, help="of the soak or burst (default: %(default)g)"
    )
    if soak:
        parser.add_argument("--load", type=between(0.01, 1.0), default=SOAK, help="share of capacity (default: 0.7)")
    parser.add_argument("--grpc", action="store_true", help="over V2 gRPC instead of V2 HTTP")
    parser.add_argument("--kind", choices=KINDS, default="cnn", help="of models (default: cnn)")
    given = parser.parse_args(arguments)
    print(heading("A soak" if soak else "Overload", __doc__), flush=True)
    status = 0
    for one in contenders(given):
        with started([one]) as ((appliance,), folder), Generator() as generator:
            pressed = Pressed(appliance, folder, given.kind, given.grpc, generator)
            run, own = (long if soak else burst)(pressed, given)
        verdicts = [*own, *run.verdicts()]
        print(f"## {one.name}: kind {given.kind}, V2 {'gRPC' if given.grpc else 'HTTP'}\n\n{page(run, verdicts)}\n")
        status |= not all(holds for holds, _ in (verdicts if soak else run.verdicts()))
    return status
