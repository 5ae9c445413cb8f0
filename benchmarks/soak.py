"""A soak: whether the data plane grows under a load that it can carry for long.

The application of ``pressure`` at a share of its capacity, in one open loop (Poisson) with every answer checked. Minute
by minute: latencies at the client, time in queues as answers report it, and what gateway and executor hold: memory,
descriptors beyond those of clients' connections, threads. Growth is the Theil-Sen slope (Sen, 1968: the median of the
slopes of all pairs) of medians of tenths of a minute, which a few bad moments of the machine do not move; the first
minute, or the first fifth of a short run, is warming up and left out.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.load.sender import Phase
from benchmarks.load.driver import Generator

from .figures import Row, markdown
from .harness import between
from .pressed import Pressed, Run, capacity, carry_out, cores_in_use, main_of

CONNECTIONS = 128
MINUTE_S = 60.0
#: parts of a minute whose medians the slope goes through
PARTS = 10
#: the first seconds that are left out: warming up
WARMING_S, WARMING_SHARE = 60.0, 0.2


@dataclass(frozen=True)
class Limit:
    """Growth over the run that is allowed.

    Attributes:
        share: of the median.
        least: allowed whatever the median is, in ``unit``.
    """

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
    """One run of this many seconds. ``rate``: offered, and ``capacity``, in queries/s."""

    seconds: float
    rate: float
    capacity: float
    run: Run


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


def measure(pressed: Pressed, seconds: float, share: float) -> Found:
    """Run it.

    Raises:
        LoadError, RuntimeError: a process did not start or ended.
    """
    with Generator() as generator:
        most = capacity(pressed, generator, min(10.0, seconds / 10)).rate
        load = pressed.load(connections=CONNECTIONS, phases=[Phase(seconds, share * most)], patience_s=30.0)
        return Found(seconds, share * most, most, carry_out(pressed, generator, load, seconds / 60))


# --- growth -----------------------------------------------------------------------------------------------------------


def theil_sen(moments: np.ndarray, values: np.ndarray) -> float:
    """Return the median of the slopes of all pairs of points (Sen, 1968).

    0 of fewer than two points.
    """
    slopes = [
        (values[j] - values[i]) / (moments[j] - moments[i]) for i, j in itertools.combinations(range(len(moments)), 2)
    ]
    return float(np.median(slopes)) if slopes else 0.0


def growth(name: str, limit: Limit, moments: np.ndarray, values: np.ndarray, part_s: float) -> Growth:
    """Return the growth of samples, by the medians of parts of ``part_s`` seconds.

    Args:
        moments: of the samples, in seconds.
    """
    places = ((moments - moments[0]) // part_s).astype(int)
    kept = np.unique(places)
    medians = np.array([np.median(values[places == place]) for place in kept])
    slope = theil_sen(kept * part_s, medians)
    return Growth(name, limit, float(np.median(medians)), slope * 3600, slope * float(moments[-1] - moments[0]))


def grown(found: Found) -> list[Growth]:
    run = found.run
    warming_s = min(WARMING_S, WARMING_SHARE * found.seconds)
    part_s = min(MINUTE_S, found.seconds / 4) / PARTS
    start, end = run.summary.began + warming_s, run.summary.began + found.seconds
    found_growths = []
    for process in ("gateway", "executor"):
        series = {
            field: run.watch.series(process, field, start, end)
            for field in ("rss_mib", "descriptors", "connections", "threads")
        }
        moments, rss = series["rss_mib"]
        values = {
            "memory": rss,
            "descriptors": series["descriptors"][1] - series["connections"][1],
            "threads": series["threads"][1],
        }
        found_growths += [
            growth(f"{process}: {name}", LIMITS[name], moments, value, part_s) for name, value in values.items()
        ]
    some = run.records.between(warming_s, found.seconds)
    answers = some.rows[some.answered]
    found_growths.append(growth("queue time", LIMITS["queue time"], answers["due"], answers["queue_ms"], part_s))
    return found_growths


# --- the page ---------------------------------------------------------------------------------------------------------


def _minutes(found: Found) -> list[Row]:
    run, step = found.run, min(MINUTE_S, found.seconds / 4)
    rows = []
    for start in np.arange(0.0, found.seconds - step / 2, step):
        some = run.records.between(start, start + step)
        middle = run.summary.began + start + step / 2
        gateway, executor = (run.watch.at(process, middle) for process in ("gateway", "executor"))
        rows.append(
            {
                "from s": float(start),
                "queries": len(some),
                "late": some.late,
                "refused": int(np.count_nonzero(some.refused)),
                "other": len(some) - int(np.count_nonzero(some.answered | some.refused)),
                "p50 ms": some.latency_ms(0.5),
                "p99 ms": some.latency_ms(0.99),
                "queue p50 ms": some.queue_ms(0.5),
                "gateway MiB": gateway.rss_mib,
                "executor MiB": executor.rss_mib,
            }
        )
    return rows


def _growth(one: Growth) -> Row:
    figures = {"median": one.median, "an hour": one.hourly, "in this run": one.grown, "at most": one.allowed}
    return {"": one.name, **figures, "unit": one.limit.unit}


def verdict(found: Found, growths: Sequence[Growth]) -> tuple[bool, str]:
    run = found.run
    complaints = [f"{one.name} grew by {one.grown:.2f} {one.limit.unit}".strip() for one in growths if not one.holds]
    if run.records.untold:
        complaints.append(f"{run.records.untold} queries were lost or answered wrongly: {run.records.ends()}")
    if not run.counted_all:
        complaints.append(f"the gateway counted {sum(run.counted.values())} queries, clients sent {len(run.records)}")
    if run.watch.failed:
        complaints.append(f"a process could not be watched: {run.watch.failed}")
    if complaints:
        return False, f"**does not hold**: {'; '.join(complaints)}"
    return True, f"holds: nothing grew, and each of {len(run.records)} queries had one end"


def page(found: Found, growths: Sequence[Growth]) -> str:
    records = found.run.records
    lines = [
        f"{found.rate:.0f} queries/s of {found.capacity:.0f}, for {found.seconds:.0f} s. Cores in use: "
        f"{cores_in_use(found.run, 0.0, found.seconds)}.",
        markdown(_minutes(found)),
        markdown([_growth(one) for one in growths]),
        f"Without an answer: {records.ends() or 'none'}; late: {records.late}.",
        verdict(found, growths)[1],
    ]
    return "\n\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        1: something grew, queries were lost, or a process did not run. 0 otherwise.
    """

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seconds", type=between(2.0, 86_400.0), default=900.0, help="how long (default: 900)")
        parser.add_argument("--load", type=between(0.01, 1.0), default=0.7, help="share of capacity (default: 0.7)")

    def run(pressed: Pressed, given: argparse.Namespace) -> tuple[str, bool]:
        found = measure(pressed, given.seconds, given.load)
        growths = grown(found)
        return page(found, growths), verdict(found, growths)[0]

    return main_of("soak", "A soak", __doc__, options, run, arguments)
