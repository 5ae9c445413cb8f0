"""A soak: whether the data plane grows under a load that it can carry for long.

The application of ``pressure`` at a share of its capacity, in one open loop (Poisson) with every answer checked. Minute
by minute: latencies at the client, time in queues as answers report it, and what gateway and executor hold: memory,
descriptors beyond those of clients' connections, threads. Growth is the Theil-Sen slope of medians of tenths of a
minute; the first minute, or the first fifth of a short run, is warming up and left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.load.sender import Phase
from benchmarks.load.driver import Generator

from .figures import markdown
from .harness import between
from .pressed import PROCESSES, Growth, Limit, Pressed, Run, Verdict, capacity, carry_out, growth, main_of, page

CONNECTIONS = 128
MINUTE_S = 60.0
#: parts of a minute whose medians the slope goes through
PARTS = 10
#: the first seconds that are left out: warming up
WARMING_S, WARMING_SHARE = 60.0, 0.2
#: growth over the run that is allowed
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


def measure(pressed: Pressed, seconds: float, share: float) -> Found:
    """Run it.

    Raises:
        LoadError, RuntimeError: a process did not start or ended.
    """
    with Generator() as generator:
        most = capacity(pressed, generator, min(10.0, seconds / 10)).rate
        load = pressed.load(connections=CONNECTIONS, phases=[Phase(seconds, share * most)], patience_s=30.0)
        return Found(seconds, share * most, most, carry_out(pressed, generator, load, seconds / 60))


def grown(found: Found) -> list[Growth]:
    run = found.run
    span = min(WARMING_S, WARMING_SHARE * found.seconds), found.seconds
    part_s = min(MINUTE_S, found.seconds / 4) / PARTS
    growths = []
    for process in PROCESSES:
        moments, memory = run.series(process, "rss_mib", *span)
        descriptors, connections, threads = (
            run.series(process, field, *span)[1] for field in ("descriptors", "connections", "threads")
        )
        values = {"memory": memory, "descriptors": descriptors - connections, "threads": threads}
        growths += [growth(f"{process}: {one}", LIMITS[one], moments, of, part_s) for one, of in values.items()]
    some = run.records.between(*span)
    answers = some.rows[some.answered]
    return [*growths, growth("queue time", LIMITS["queue time"], answers["due"], answers["queue_ms"], part_s)]


def verdicts(found: Found, growths: Sequence[Growth]) -> list[Verdict]:
    return [*found.run.verdicts(), *(one.verdict for one in growths)]


def _page(found: Found, growths: Sequence[Growth]) -> str:
    step = min(MINUTE_S, found.seconds / 4)
    starts = np.arange(0.0, found.seconds - step / 2, step)
    slopes = [
        {"": one.name, "median": one.median, "an hour": one.hourly, "in this run": one.grown, "at most": one.allowed}
        for one in growths
    ]
    paragraphs = [
        f"{found.rate:.0f} queries/s of {found.capacity:.0f}, for {found.seconds:.0f} s. "
        + found.run.cores(0.0, found.seconds),
        markdown(slopes),
    ]
    rows = [found.run.row(f"from {start:.0f} s", float(start), float(start + step)) for start in starts]
    return page(paragraphs, rows, verdicts(found, growths))


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
        return _page(found, growths), all(holds for holds, _ in verdicts(found, growths))

    return main_of("soak", "A soak", __doc__, options, run, arguments)
