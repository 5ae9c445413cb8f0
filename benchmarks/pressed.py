"""An application of three variants to be pressed, and a watched load of it.

The capacity of the appliance that serves it is measured, too.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from appliance.load.records import Records
from appliance.load.sender import Load
from benchmarks.load.driver import Generator, LoadError
from benchmarks.load.process import Summary

from .figures import Row, heading, markdown
from .harness import Contending, Variant, add_contenders, contenders, started
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
ENDED = re.compile(r'^nereus_gateway_queries_total\{application="([^"]+)",outcome="([^"]+)"\} (\S+)$', re.MULTILINE)
#: connections of the trials that find how many saturate the device, and the share of the time that each trial takes
TRIALS, TRIAL_SHARE = (8, 16, 32, 64, 128), 0.2
#: more connections must bring so much more; trials end where two in a row do not
BETTER = 1.03

#: whether something holds that must, and the figures
Verdict = tuple[bool, str]


class Pressed:
    """Both applications on a running appliance."""

    def __init__(self, appliance: Contending, folder: Path, kind: str, grpc: bool):
        self.appliance = appliance
        self._grpc = grpc
        self._file = folder / "rows.npy"
        self._variants = [
            Variant(name, convolutions(folder, name, width), accuracy)
            for (name, accuracy), width in zip(VARIANTS.items(), KINDS[kind], strict=True)
        ]
        appliance.register(FASTEST, SLO_S * 1e3, self._variants[:1])
        appliance.register(PRESSED, SLO_S * 1e3, self._variants)

    def load(self, application: str = PRESSED, **given: Any) -> Load:
        cores = self.appliance.away()
        return self.appliance.load(application, self._variants, self._file, self._grpc, cores=cores, **given)


@dataclass(frozen=True)
class Capacity:
    """``rate``: queries/s answered in time. ``missed``: queries that were not."""

    rate: float
    missed: int
    connections: int


def capacity(pressed: Pressed, generator: Generator, seconds: float, connections: int = 0) -> Capacity:
    """Measure the capacity by a closed loop with this many connections.

    Args:
        connections: 0: as many as bring the most answers in time.

    Raises:
        LoadError: the load generator failed.
    """
    connections = connections or _saturating(pressed, generator, TRIAL_SHARE * seconds, TRIALS)
    return _closed(pressed, generator, connections, seconds)


def _saturating(pressed: Pressed, generator: Generator, seconds: float, trials: Sequence[int]) -> int:
    best, vain = None, 0
    for connections in trials:
        trial = _closed(pressed, generator, connections, seconds)
        if best is None or trial.rate > BETTER * best.rate:
            best, vain = trial, 0
        elif (vain := vain + 1) == 2:
            break
    return best.connections


def _closed(pressed: Pressed, generator: Generator, connections: int, seconds: float) -> Capacity:
    records, _ = generator.run(pressed.load(FASTEST, connections=connections, closed_s=seconds), SLO_S)
    in_time = int(np.count_nonzero(records.in_time))
    ended_within = int(np.count_nonzero(records.in_time & (records.rows["ended"] < seconds)))
    return Capacity(ended_within / seconds, len(records) - in_time, connections)


def counted(address: str, application: str) -> dict[str, int]:
    """The gateway's own count of an application's queries so far, by how they ended.

    Raises:
        OSError: the gateway does not answer.
    """
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {outcome: int(float(count)) for name, outcome, count in ENDED.findall(text) if name == application}


# --- growth -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """Growth that is allowed.

    Attributes:
        share: of the median.
        least: allowed whatever the median is, in ``unit``.
    """

    share: float
    least: float
    unit: str


@dataclass(frozen=True)
class Growth:
    """The growth of one figure.

    Attributes:
        median: of the figure.
        hourly: its slope by the hour.
        grown: its growth over the part of the run that counts.
    """

    name: str
    limit: Limit
    median: float
    hourly: float
    grown: float

    @property
    def allowed(self) -> float:
        return max(self.limit.share * self.median, self.limit.least)

    @property
    def holds(self) -> bool:
        return self.grown <= self.allowed

    @property
    def verdict(self) -> Verdict:
        text = f"{self.name} grew by {self.grown:.2f} {self.limit.unit} (at most {self.allowed:.1f})"
        return self.holds, " ".join(text.split())


def growth(name: str, limit: Limit, moments: np.ndarray, values: np.ndarray, part_s: float) -> Growth:
    """The growth of samples, by the Theil-Sen slope through medians of parts.

    That is the median of the slopes of all pairs (Sen, 1968), which a few bad moments of the machine do not move.

    Args:
        moments: of the samples, in seconds; ``part_s``: of a part.
    """
    places = ((moments - moments[0]) // part_s).astype(int)
    parts = np.unique(places)
    medians = np.array([np.median(values[places == place]) for place in parts])
    pairs = itertools.combinations(range(len(parts)), 2)
    slopes = [(medians[j] - medians[i]) / ((parts[j] - parts[i]) * part_s) for i, j in pairs]
    slope = float(np.median(slopes)) if slopes else 0.0
    return Growth(name, limit, float(np.median(medians)), slope * 3600, slope * float(moments[-1] - moments[0]))


# --- a watched load ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A watched load.

    Attributes:
        counted: queries by how they ended, by the gateway's own counters.
    """

    records: Records
    summary: Summary
    watch: Watch
    counted: dict[str, int]

    def series(self, process: str, field: str, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """Samples of a process between two moments of the load; see :meth:`.Watch.series`."""
        return self.watch.series(process, field, self.summary.began + start, self.summary.began + end)

    def row(self, name: str, start: float, end: float) -> Row:
        """Queries due between two moments of the load, and memory in their middle."""
        some, began = self.records.between(start, end), self.summary.began
        ended = self.records.rows["ended"]
        served = np.count_nonzero(self.records.in_time & (ended >= start) & (ended < end))
        variants = some.variants(list(VARIANTS))
        answered = max(1, sum(variants.values()))
        return {
            "": name,
            "queries": len(some),
            "offered/s": len(some) / (end - start),
            "in time/s": float(served) / (end - start),
            "late": some.late,
            "refused": int(np.count_nonzero(some.refused)),
            "other": len(some) - int(np.count_nonzero(some.answered | some.refused)),
            "p50 ms": some.latency_ms(0.5),
            "p99 ms": some.latency_ms(0.99),
            "queue p50 ms": some.queue_ms(0.5),
            "accuracy %": sum(VARIANTS[one] * count for one, count in variants.items()) / answered,
            **{f"{one} MiB": self.watch.at(one, began + (start + end) / 2).rss_mib for one in PROCESSES},
        }

    def verdicts(self) -> list[Verdict]:
        """What must hold of every load."""
        ends, total = self.records.ends() or "none", sum(self.counted.values())
        sent = f"the gateway counted {total} queries ({self.counted}), clients sent {len(self.records)}"
        return [
            (not self.records.untold, f"{self.records.untold} queries were lost or answered wrongly, of {ends}"),
            (total == len(self.records), sent),
            (not self.watch.failed, f"processes could be watched {self.watch.failed}".strip()),
        ]

    def cores(self, start: float, end: float) -> str:
        """Cores in use by process between two moments of the load, in words."""
        began = self.summary.began
        cores = {name: self.watch.cores(name, began + start, began + end) for name in PROCESSES}
        cores["the load generator"] = self.summary.cpu_s / self.summary.seconds
        return "Cores in use: " + ", ".join(f"{name} {share:.2f}" for name, share in cores.items()) + "."


def carry_out(pressed: Pressed, generator: Generator, load: Load, every_s: float) -> Run:
    """Carry out a load and watch the gateway and the executor.

    Args:
        every_s: seconds between samples; at most 1 counts.

    Raises:
        LoadError, RuntimeError: the load generator failed, or a process ended.
    """
    address, before = pressed.appliance.http, {}
    pids = {role: pressed.appliance.pids(role)[0] for role in PROCESSES}
    with Watch(pids, every_s=min(1.0, every_s)) as watch:
        records, summary = generator.run(load, SLO_S, lambda: before.update(counted(address, PRESSED)))
    after = counted(address, PRESSED)
    pressed.appliance.cpu_s()
    return Run(records, summary, watch, {name: after[name] - before.get(name, 0) for name in after})


def page(paragraphs: Iterable[str], rows: Sequence[Row], verdicts: Iterable[Verdict]) -> str:
    """The figures in Markdown."""
    lines = [f"- {'holds' if holds else '**does not hold**'}: {text}" for holds, text in verdicts]
    return "\n\n".join([*paragraphs, markdown(rows), "\n".join(lines)])


def main_of(
    name: str,
    title: str,
    about: str,
    options: Callable[[argparse.ArgumentParser], None],
    run: Callable[[Pressed, argparse.Namespace], tuple[str, bool]],
    arguments: Sequence[str] | None,
) -> int:
    """Run the command line of a benchmark that presses appliances.

    Args:
        run: returns the benchmark's page, and whether all is well.

    Returns:
        The exit status: 1 where an appliance or the load failed, or not all is well.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=about.splitlines()[0])
    add_contenders(parser, gateways=False)
    options(parser)
    parser.add_argument("--grpc", action="store_true", help="over V2 gRPC instead of V2 HTTP")
    parser.add_argument("--kind", choices=KINDS, default="cnn", help="of models (default: cnn)")
    given = parser.parse_args(arguments)
    print(heading(title, about), flush=True)
    status = 0
    for one in contenders(given):
        try:
            with tempfile.TemporaryDirectory(prefix="nereus-p-") as home, started([one], Path(home)) as (appliance,):
                text, holds = run(Pressed(appliance, Path(home), given.kind, given.grpc), given)
        except (LoadError, RuntimeError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(f"## {one.name}: kind {given.kind}, V2 {'gRPC' if given.grpc else 'HTTP'}\n\n{text}", flush=True)
        status |= not holds
    return status
