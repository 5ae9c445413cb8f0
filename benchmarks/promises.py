"""Coverage of promised intervals, simulated under the demo's load.

One long run of the demo's waves and bursts on two devices with eight variants of two applications, which take longer or
shorter than profiled by up to a tenth. Promises are made for the plan that is in force, from a cold start on. Intervals
are judged as the simulation made them, and as corrected by the promises before.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from appliance.demo.rates import LoadCapacity, RateProfile, arrivals
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile, Problem
from scheduler.promises.intervals import FIGURES, Interval, correction, may_miss, widened
from scheduler.promises.recorded import RECORD_S, Recorded, record
from scheduler.promises.windows import MOST_S, Expectation, Windows, World, scenario, simulated
from scheduler.simulation import simulate
from scheduler.simulation.arrivals import Trace
from scheduler.simulation.engine import IN_TIME
from scheduler.simulation.results import SimulationResults
from scheduler.simulation.scenario import ControlSettings
from scheduler.stacks import strategies

from .figures import markdown

KIND = "cpu"
#: median run time over the 95th percentile, about that of ONNX models on a quiet core
MEDIAN = 0.85
#: the demo's variants: ms of one row, and accuracy in percent of the best, by application
DEMO = {
    "digits": {"wide": (5, 96.68), "pair": (20, 99.49), "quartet": (40, 99.74), "sextet": (60, 100.0)},
    "meters": {"wide": (5, 91.54), "pair": (20, 99.23), "trio": (30, 99.74), "quintet": (50, 100.0)},
}
DEMO_SLO_S = 0.5
#: of a first row's time that each further row of a batch takes
FURTHER_ROW = 0.7
#: queries/s of each application that its share of the devices carries with the most and the least accurate variant
DEMO_CAPACITY = {"digits": LoadCapacity(16.0, 170.0), "meters": LoadCapacity(20.0, 170.0)}
#: seconds of a load, and how far run times of a variant are from its profile at most, as a part of it
LOAD_S, PROFILE_ERROR = 0.3, 0.1
#: seconds of the demo's load before the first promise
COLD_S = 20


class Judged:
    """``counts``: by figure: promises, those that held as simulated, and those that held as corrected."""

    def __init__(self) -> None:
        self.counts = {figure: [0, 0, 0] for figure in FIGURES}
        self._misses: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._held: dict[tuple[str, str], list[bool]] = defaultdict(list)

    def compare(self, name: str, expected: Expectation, accuracy: float, violations: float) -> None:
        """Compare an application's promise with what came, which corrects the next one."""
        for figure, came in (("accuracy", accuracy), ("violations", violations)):
            interval: Interval | None = getattr(expected, f"{figure}_interval")
            if interval is None:
                continue
            misses, held = self._misses[name, figure], self._held[name, figure]
            corrected = widened(interval, correction(misses, may_miss(held))).clipped(*FIGURES[figure])
            found = (1, interval.holds(came), corrected.holds(came))
            self.counts[figure] = [a + b for a, b in zip(self.counts[figure], found, strict=True)]
            misses.append(interval.outside(came))
            held.append(corrected.holds(came))


def cold() -> World:
    variants = tuple(
        CandidateVariant(f"{name}/{variant}", name, accuracy, {KIND: _profile(ms)})
        for name, some in DEMO.items()
        for variant, (ms, accuracy) in some.items()
    )
    asked = Problem(
        devices=tuple(DeviceResources(f"box/cpu{number}", KIND, 2**30) for number in range(2)),
        applications=tuple(ApplicationDemand(name, DEMO_SLO_S, 5.0) for name in DEMO),
        variants=variants,
    )
    silence = Recorded({name: (0.0,) * COLD_S for name in DEMO}, {})
    medians = {variant.id: MEDIAN for variant in variants}
    plan = strategies.get("nereus")(asked)
    return World("nereus", asked, plan, silence, {}, medians, ControlSettings(period_s=30.0))


def _profile(ms: float) -> LatencyProfile:
    points = tuple((rows, ms * (1 + FURTHER_ROW * (rows - 1)) / 1000) for rows in (1, 2, 4, 8, 16))
    return LatencyProfile(points, memory_bytes=2**20, load_s=LOAD_S)


def load_run(world: World, seconds: int, seed: int) -> SimulationResults:
    came: list[tuple[float, int]] = []
    for place, (name, capacity) in enumerate(DEMO_CAPACITY.items()):
        profile = RateProfile(capacity, seed + place, place / len(DEMO_CAPACITY))
        for at in arrivals(profile, random.Random(f"{seed}:{name}")):
            if at >= seconds:
                break
            came.append((at, place))
    came.sort()
    load = Trace(tuple(DEMO), [at for at, _ in came], [place for _, place in came])
    run = replace(scenario(world, 1, seed), arrivals=load, profile_error=PROFILE_ERROR, load_time_s=LOAD_S)
    return simulate(run)


def judge(count: int, every_s: int, seed: int, windows: Windows | None = None) -> Judged:
    """Compare promises under the demo's load with what came."""
    started, judged = cold(), Judged()
    run = load_run(started, COLD_S + count * every_s + MOST_S, seed)
    times, outcome = np.asarray(run.scenario.arrivals.times), np.frombuffer(run.record.outcome, dtype=np.uint8)
    places = np.asarray(run.scenario.arrivals.applications)
    by_variant = np.array([accuracy for _, _, accuracy in run.record.variants])
    accuracy = by_variant[np.frombuffer(run.record.variant, dtype=np.int32)]
    seconds = int(times[-1]) + 1
    arrived = [np.bincount(times[places == place].astype(int), minlength=seconds) for place in range(len(DEMO))]
    for number in tqdm(range(count), disable=None):
        now = COLD_S + number * every_s
        listed = range(max(0, now - RECORD_S), now)
        before = record(
            [(t, {name: (arrived[i][t], arrived[i][t]) for i, name in enumerate(DEMO)}) for t in listed], list(DEMO)
        )
        plan = [planned for planned in run.record.plans if planned.at <= now][-1]
        present = replace(
            started, problem=replace(plan.problem, previous=None), allocation=plan.allocation, recorded=before
        )
        promise = simulated(present, windows=windows)
        window = (times >= now) & (times < now + promise.window_s)
        for place, name in enumerate(DEMO):
            mine = window & (places == place)
            good = mine & (outcome == IN_TIME)
            expected = promise.applications.get(name)
            if expected is not None and good.any():
                judged.compare(name, expected, float(accuracy[good].mean()), float(1.0 - good.sum() / mine.sum()))
    return judged


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks promises", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="promises (default: %(default)s)")
    parser.add_argument("--every", type=int, default=20, help="seconds between two (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals (default: %(default)s)")
    options = parser.parse_args(arguments)
    rows = [
        {"figure": figure, "promises": promises, "held as simulated %": 100 * plain, "held as corrected %": 100 * held}
        for figure, (promises, plain, held) in judge(options.count, options.every, options.seed).counts.items()
    ]
    print(markdown(rows))
