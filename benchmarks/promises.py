"""How often promised intervals hold on a published trace, simulated.

Every minute of InfAdapter's trace a promise is made from the two minutes before, for the plan that the estimated demand
gives four devices with a quick and a good variant. Reality is the same plan, simulated on the seconds that follow.
Intervals are judged as the simulation made them, and as corrected by the promises before.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scheduler.allocation import strategies
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile, Problem
from scheduler.control.demand import estimate
from scheduler.promises.intervals import FIGURES, Interval, correction, widened
from scheduler.promises.recorded import RECORD_S, Recorded, trace
from scheduler.promises.windows import BEFORE_S, World, run_window, simulated
from scheduler.simulation.scenario import ControlSettings

from . import forecast

NAME, KIND = "twitter", "cpu"
#: ms a row, and accuracy, percent, by variant
VARIANTS = {"quick": (4, 90.0), "good": (30, 100.0)}
#: median run time over the 95th percentile, about that of ONNX models on a quiet core
MEDIAN = 0.85


def problem(demand: float) -> Problem:
    """Four devices, which serve 133 items/s with the good variant and 1,000 with the quick one."""

    def profile(ms: float) -> LatencyProfile:
        return LatencyProfile(tuple((batch, batch * ms / 1000) for batch in (1, 2, 4, 8)))

    return Problem(
        devices=tuple(DeviceResources(f"cpu{number}", KIND) for number in range(4)),
        applications=(ApplicationDemand(NAME, 0.3, demand),),
        variants=tuple(CandidateVariant(n, NAME, good, {KIND: profile(ms)}) for n, (ms, good) in VARIANTS.items()),
    )


def judge(counts: Sequence[float], count: int, every_s: int, wall_s: float = 60.0) -> dict[str, tuple[int, int, int]]:
    """By figure: promises, those that held as simulated, and as corrected.

    Args:
        counts: queries by second.
        wall_s: for the windows of one promise.
    """
    found = {figure: [0, 0, 0] for figure in FIGURES}
    misses: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    previous = None
    for number in range(count):
        now = RECORD_S + number * every_s
        before = Recorded({NAME: tuple(counts[now - RECORD_S : now])}, {})
        demand = estimate(before.history({}), [NAME], 0, horizon_s=30.0)[NAME]
        asked = replace(problem(demand), previous=previous)
        previous = strategies.get("nereus")(asked)
        medians = dict.fromkeys(VARIANTS, MEDIAN)
        world = World("nereus", asked, previous, before, {}, medians, ControlSettings(period_s=30.0))
        promise = simulated(world, wall_s=wall_s)
        length = promise.window_s
        coming = Recorded({NAME: tuple(counts[now - BEFORE_S : now + length])}, {})
        arrivals = trace(coming, BEFORE_S + length, {}, seed=number, first=0)
        ((items, in_time, accuracy),) = run_window(world, length, 1_000 + number, arrivals)
        expected = promise.applications.get(NAME)
        if expected is None or not in_time:
            continue
        for figure, came in (("accuracy", accuracy / in_time), ("violations", 1.0 - in_time / items)):
            interval: Interval = getattr(expected, f"{figure}_interval")
            corrected = widened(interval, correction(misses[figure])).clipped(*FIGURES[figure])
            found[figure][0] += 1
            found[figure][1] += interval.holds(came)
            found[figure][2] += corrected.holds(came)
            misses[figure].append(interval.outside(came))
    return {figure: tuple(some) for figure, some in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks promises", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=float, default=2.5, help="of the trace's arrivals (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100, help="promises (default: %(default)s)")
    parser.add_argument("--every", type=int, default=60, help="seconds between two (default: %(default)s)")
    options = parser.parse_args(arguments)
    rates = forecast.infadapter()[NAME] * options.times
    counts = np.floor(rates + np.random.default_rng(1).random(len(rates))).tolist()
    print("| figure | promises | held as simulated | held as corrected |\n|---|---:|---:|---:|")
    for figure, (promises, simulated_held, held) in judge(counts, options.count, options.every).items():
        print(f"| {figure} | {promises} | {simulated_held / promises:.1%} | {held / promises:.1%} |")
