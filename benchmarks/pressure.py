"""Overload: three times the load that the appliance can answer.

An appliance with one one-core device serves an application with three variants of different cost and accuracy within
200 ms. Capacity is what a closed loop gets answered in time of an application with nothing but the least accurate
variant, before and after, so that a machine that changes meanwhile shows. Then, in one open loop (Poisson), half of
that capacity, three times it, and half of it again. Queries come from a process of their own, away from the executor's
core, and count from when they were due, whether or not the generator was in time to send them. The client's counts of
how queries ended are compared with the gateway's own counters.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from appliance.load.records import Records
from appliance.load.sender import Phase
from benchmarks.load.driver import Generator, LoadError

from .harness import between
from .pressed import (
    PROCESSES,
    SLO_S,
    Capacity,
    Limit,
    Pressed,
    Run,
    Verdict,
    capacity,
    carry_out,
    growth,
    main_of,
    page,
)

#: of capacity: the load before and after, and in the burst
BESIDE, BURST = 0.5, 3.0
#: connections opened beforehand; an open loop opens more where it needs them
CONNECTIONS = 64
#: goodput in the burst over capacity, at least
GOODPUT = 0.95
#: share of the SLO within which a refusal must come
AT_ONCE = 0.25
#: growth of memory during the burst
MEMORY = Limit(0.03, 4.0, "MiB")
#: seconds of one plan period, in which the tail must have recovered
PLAN_PERIOD_S = 10.0


@dataclass(frozen=True)
class Found:
    """One run.

    Attributes:
        before, after: seconds of half the load, before and after the burst.
        burst: its start and its end, in seconds of the load.
        capacities: before and after.
    """

    before: float
    after: float
    burst: tuple[float, float]
    capacities: Sequence[Capacity]
    run: Run


def measure(pressed: Pressed, seconds: float) -> Found:
    """Run everything once, with a burst of this many seconds.

    Raises:
        LoadError, RuntimeError: a process did not start or ended.
    """
    before, after, trial = (min(most, max(1.0, seconds / 4)) for most in (15.0, 20.0, 10.0))
    with Generator() as generator:
        first = capacity(pressed, generator, trial)
        if not first.rate:
            raise LoadError("not one query was answered in time where capacity was measured")
        parts = ((before, BESIDE), (seconds, BURST), (after, BESIDE))
        phases = [Phase(length, share * first.rate) for length, share in parts]
        run = carry_out(pressed, generator, pressed.load(connections=CONNECTIONS, phases=phases), seconds / 12)
        capacities = [first, capacity(pressed, generator, trial, first.connections)]
        return Found(before, after, (before, before + seconds), capacities, run)


def recovered_s(found: Found, window_s: float = 1.0) -> float:
    """Seconds after the burst from which on latency is as before, or infinity.

    As before: the p99 of all that follows is within that of the worst window before, and the share without an answer is
    at most one percent larger.
    """
    _, end = found.burst
    before = found.run.records.between(0.0, found.before)
    starts = np.arange(0.0, found.before - window_s + 1e-9, window_s)
    windows = [before.between(start, start + window_s) for start in starts]
    p99_ms = max((some.latency_ms(0.99) for some in windows if some.answered.any()), default=0.0)
    missed = 0.01 + _missed(before)
    for after_s in np.arange(0.0, found.after - window_s + 1e-9, window_s / 4):
        rest = found.run.records.between(end + after_s, float("inf"))
        if rest.latency_ms(0.99) <= p99_ms and _missed(rest) <= missed:
            return float(after_s)
    return float("inf")


def _missed(records: Records) -> float:
    """The share without an answer."""
    return float(np.count_nonzero(~records.answered)) / max(1, len(records))


def verdicts(found: Found) -> list[Verdict]:
    run, burst = found.run, found.run.records.between(*found.burst)
    row = run.row("burst", *found.burst)
    ratio = row["in time/s"] / (sum(one.rate for one in found.capacities) / len(found.capacities))
    at_once_ms, refused_ms, back_s = AT_ONCE * SLO_S * 1e3, burst.refusal_ms(0.99), recovered_s(found)
    part_s = (found.burst[1] - found.burst[0]) / 12
    return [
        (ratio >= GOODPUT, f"goodput in the burst is {ratio:.3f} of capacity (at least {GOODPUT})"),
        (not row["other"], f"{row['other']} queries of the burst ended neither in an answer nor in a refusal"),
        (not burst.without_retry(), f"{burst.without_retry()} refusals do not say when to retry"),
        (refused_ms <= at_once_ms, f"99% of refusals took at most {refused_ms:.1f} ms (at most {at_once_ms:.0f})"),
        (
            back_s <= PLAN_PERIOD_S,
            f"the p99 latency is as before {back_s:.2f} s after the burst (at most {PLAN_PERIOD_S:.0f})",
        ),
        *run.verdicts(),
        *(growth(one, MEMORY, *run.series(one, "rss_mib", *found.burst), part_s).verdict for one in PROCESSES),
    ]


def _page(found: Found) -> str:
    run, (start, end) = found.run, found.burst
    capacities = " and ".join(
        f"{one.rate:.0f} ({one.connections} connections, {one.missed} not in time)" for one in found.capacities
    )
    burst, quarter = run.records.between(start, end), (end - start) / 4
    late = f"p50 {burst.lateness_ms(0.5):.2f} ms, p99 {burst.lateness_ms(0.99):.2f} ms late"
    parts = [("before", 0.0, start), ("burst", start, end), ("after", end, end + found.after)]
    parts[1:1] = [(f"burst, quarter {i + 1}", start + i * quarter, start + (i + 1) * quarter) for i in range(4)]
    paragraphs = [
        f"Capacity before and after: {capacities} queries/s.",
        f"In the burst: without an answer {burst.ends() or 'none'}; {run.cores(start, end)} Queries were sent {late}, "
        f"on {run.summary.connections} connections at most.",
        *(f"Noted: `{note[:200]!r}`" for note in run.summary.notes[:3]),
    ]
    return page(paragraphs, [run.row(*part) for part in parts], verdicts(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        1: queries were lost or answered wrongly, or a process did not run. 0 otherwise.
    """

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seconds", type=between(1.0, 3600.0), default=60.0, help="of the burst (default: 60)")

    def run(pressed: Pressed, given: argparse.Namespace) -> tuple[str, bool]:
        found = measure(pressed, given.seconds)
        return _page(found), not found.run.records.untold and not found.run.watch.failed

    return main_of("pressure", "Overload", __doc__, options, run, arguments)
