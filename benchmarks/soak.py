"""Whether the query path grows under a load that it can carry for long.

The stack of :mod:`.pressure` at a share of its capacity, in one open loop (Poisson) with right answers checked one by
one. Minute by minute: latencies as clients see them, time in queues as answers tell it, and what gateway and executor
hold: memory, descriptors beyond those of clients' connections, threads. Growth is the Theil-Sen slope (Sen, 1968: the
median of the slopes of all pairs) of medians of tenths of a minute, which a few bad moments of the machine do not move;
what is before the first minute, or the first fifth of a short run, is warming up and left out.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .query import counters
from .query.heading import heading
from .query.load import LoadError
from .query.pressed import capacity
from .query.recording.driver import Recorder
from .query.recording.process import Phase, Summary
from .query.recording.records import Records
from .query.stack import StackError
from .query.table import Row, markdown
from .query.variants import KINDS, PRESSED, SLO_S, VariantStack, make
from .query.watch import Watch

CONNECTIONS = 128
MINUTE_S = 60.0
#: parts of a minute whose medians the slope goes through
PARTS = 10
#: the first seconds that are left out: warming up
WARMING_S, WARMING_SHARE = 60.0, 0.2


@dataclass(frozen=True)
class Limit:
    """Growth over the run that is none: at most this share of the median, or this much."""

    share: float
    least: float
    unit: str


LIMITS = {
    "memory": Limit(0.02, 2.0, "MiB"),
    "descriptors": Limit(0.0, 1.0, ""),
    "threads": Limit(0.0, 0.5, ""),
    "queue time": Limit(0.2, 2.0, "ms"),
}


@dataclass(frozen=True)
class Found:
    """Of one run. ``rate``: offered, queries a second. ``counted``: by the gateway."""

    seconds: float
    rate: float
    capacity: float
    records: Records
    summary: Summary
    watch: Watch
    counted: dict[str, int]


@dataclass(frozen=True)
class Growth:
    """Of one figure: its median, its slope by the hour, and its growth over the part of the run that counts."""

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


def measure(seconds: float, share: float, kind: str, grpc: bool) -> Found:
    """Run it.

    Raises:
        LoadError, StackError: a process did not start or ended.
    """
    with tempfile.TemporaryDirectory(prefix="nereus-p-") as home:
        folder = Path(home)
        file = folder / "records.npy"
        with VariantStack(folder, make(folder, kind, 0.1)) as stack, Recorder() as recorder:
            most = capacity(stack, recorder, file, min(10.0, seconds / 10), grpc).rate
            load = stack.load(
                PRESSED, file, grpc, connections=CONNECTIONS, phases=[Phase(seconds, share * most)], patience_s=30.0
            )
            before: list[dict[str, int]] = []
            pids = {name: stack.pid(name) for name in ("gateway", "executor")}
            with Watch(pids, every_s=min(1.0, seconds / 60)) as watch:
                records, summary = recorder.run(
                    load, SLO_S, lambda: before.append(counters.ended(stack.http_port, PRESSED))
                )
            counted = counters.since(before[0], counters.ended(stack.http_port, PRESSED))
            stack.check()
            return Found(seconds, share * most, most, records, summary, watch, counted)


# --- growth -----------------------------------------------------------------------------------------------------------


def theil_sen(moments: np.ndarray, values: np.ndarray) -> float:
    """The median of the slopes of all pairs of points (Sen, 1968); 0 of fewer than two."""
    slopes = [
        (values[j] - values[i]) / (moments[j] - moments[i]) for i, j in itertools.combinations(range(len(moments)), 2)
    ]
    return float(np.median(slopes)) if slopes else 0.0


def growth(name: str, limit: Limit, moments: np.ndarray, values: np.ndarray, part_s: float) -> Growth:
    """Of samples at moments (s), by the medians of parts of ``part_s`` seconds."""
    places = ((moments - moments[0]) // part_s).astype(int)
    kept = np.unique(places)
    medians = np.array([np.median(values[places == place]) for place in kept])
    slope = theil_sen(kept * part_s, medians)
    return Growth(name, limit, float(np.median(medians)), slope * 3600, slope * float(moments[-1] - moments[0]))


def grown(found: Found) -> list[Growth]:
    """All that must not grow."""
    warming_s = min(WARMING_S, WARMING_SHARE * found.seconds)
    part_s = min(MINUTE_S, found.seconds / 4) / PARTS
    start, end = found.summary.began + warming_s, found.summary.began + found.seconds
    told = []
    for process in ("gateway", "executor"):
        watch = found.watch
        moments, rss = watch.series(process, "rss_mib", start, end)
        told.append(growth(f"{process}: memory", LIMITS["memory"], moments, rss, part_s))
        beyond = (
            watch.series(process, "descriptors", start, end)[1] - watch.series(process, "connections", start, end)[1]
        )
        told.append(growth(f"{process}: descriptors", LIMITS["descriptors"], moments, beyond, part_s))
        threads = watch.series(process, "threads", start, end)[1]
        told.append(growth(f"{process}: threads", LIMITS["threads"], moments, threads, part_s))
    some = found.records.between(warming_s, found.seconds)
    answers = some.rows[some.answered]
    told.append(growth("queue time", LIMITS["queue time"], answers["due"], answers["queue_ms"], part_s))
    return told


# --- what is told -----------------------------------------------------------------------------------------------------


def _minutes(found: Found) -> list[Row]:
    step = min(MINUTE_S, found.seconds / 4)
    rows = []
    for start in np.arange(0.0, found.seconds - step / 2, step):
        some = found.records.between(start, start + step)
        middle = found.summary.began + start + step / 2
        gateway, executor = (found.watch.at(process, middle) for process in ("gateway", "executor"))
        rows.append(
            {
                "from s": float(start),
                "queries": len(some),
                "late": some.late,
                "refused": int(np.count_nonzero(some.refused)),
                "other": len(some) - int(np.count_nonzero(some.answered | some.refused)),
                "p50 ms": some.latency_ms(0.5),
                "p99 ms": some.latency_ms(0.99),
                "p99.9 ms": some.latency_ms(0.999),
                "queue p50 ms": some.queue_ms(0.5),
                "queue p99 ms": some.queue_ms(0.99),
                "gateway MiB": gateway.rss_mib,
                "descriptors": gateway.descriptors - gateway.connections,
                "connections": gateway.connections,
                "threads": gateway.threads,
                "executor MiB": executor.rss_mib,
                "executor descriptors": executor.descriptors,
                "executor threads": executor.threads,
            }
        )
    return rows


def _growths(told: Sequence[Growth]) -> list[Row]:
    return [
        {
            "": one.name,
            "median": one.median,
            "an hour": one.hourly,
            "in this run": one.grown,
            "at most": one.allowed,
            "unit": one.limit.unit,
        }
        for one in told
    ]


def verdict(found: Found, told: Sequence[Growth]) -> tuple[bool, str]:
    """Whether all is well, and the line that says so or what is not."""
    complaints = [f"{one.name} grew by {one.grown:.2f} {one.limit.unit}".strip() for one in told if not one.holds]
    records = found.records
    if records.untold:
        complaints.append(f"{records.untold} queries were lost or answered wrongly: {records.ends()}")
    counted = sum(found.counted.values())
    if counted != len(records):
        complaints.append(f"the gateway counted {counted} queries, clients sent {len(records)}")
    if found.watch.failed:
        complaints.append(f"a process could not be watched: {found.watch.failed}")
    if complaints:
        return False, f"**does not hold**: {'; '.join(complaints)}"
    return True, f"holds: nothing grew, and each of {len(records)} queries had one end"


def page(found: Found, told: Sequence[Growth], kind: str, grpc: bool) -> str:
    """The whole page but its heading, in Markdown."""
    start, end = found.summary.began, found.summary.began + found.seconds
    cores = {process: found.watch.cores(process, start, end) for process in ("gateway", "executor")}
    cores["the load generator"] = found.summary.cpu_s / found.summary.seconds
    cores["all else on this machine"] = max(0.0, found.watch.machine_cores(start, end) - sum(cores.values()))
    in_use = ", ".join(f"{name} {share:.2f}" for name, share in cores.items())
    lines = [
        f"{kind.upper()}s over V2 {'gRPC' if grpc else 'HTTP'}, {found.rate:.0f} queries/s of {found.capacity:.0f}, "
        f"for {found.seconds:.0f} s. Cores in use: {in_use}.",
        markdown(_minutes(found)),
        markdown(_growths(told)),
        f"Ended otherwise than in an answer: {found.records.ends() or 'none'}; late: {found.records.late}.",
        verdict(found, told)[1],
    ]
    return "\n\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status: 1: something grew, queries were lost, or a process did not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=_between(2.0, 86_400.0), default=900.0, help="how long (default: 900)")
    parser.add_argument("--load", type=_between(0.01, 1.0), default=0.7, help="share of capacity (default: 0.7)")
    parser.add_argument("--grpc", action="store_true", help="over V2 gRPC instead of V2 HTTP")
    parser.add_argument("--kind", choices=KINDS, default="cnn", help="of models (default: cnn)")
    parser.add_argument("--out", type=Path, help="write the page to this file, too")
    given = parser.parse_args(arguments)
    text = heading("A soak", __doc__)
    print(text, flush=True)
    try:
        found = measure(given.seconds, given.load, given.kind, given.grpc)
    except (LoadError, StackError, OSError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    told = grown(found)
    body = page(found, told, given.kind, given.grpc)
    print(body, flush=True)
    if given.out is not None:
        given.out.write_text(f"{text}\n{body}")
    return 0 if verdict(found, told)[0] else 1


def _between(least: float, most: float):
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: must be from {least:g} to {most:g}")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
