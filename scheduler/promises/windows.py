"""A promise by simulation of short windows of arrivals like those that came. Pure."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from scheduler.allocation.problem import Allocation, Problem
from scheduler.control.demand import QUANTILE
from scheduler.simulation import simulate
from scheduler.simulation.arrivals import Trace
from scheduler.simulation.engine import IN_TIME
from scheduler.simulation.profiles import Model
from scheduler.simulation.results import SimulationResults
from scheduler.simulation.scenario import ControlSettings, Scenario, Start
from workers.dispatch.latency import LatencyModel

from .intervals import WINDOWS, Interval, of_windows
from .recorded import Recorded, trace

#: items that all windows together should have where they can be longer than the shortest, and the most that they have
#: where fewer windows suffice for it: 5,000 to 40,000 are simulated in a second
ITEMS, MOST_ITEMS = 20_000, 150_000
#: seconds of a window, and those before it whose queries do not count: queues begin empty
LEAST_S, MOST_S, BEFORE_S = 2, 30, 1
#: windows that are simulated of any load, and seconds of wall time in which that must be done
LEAST_WINDOWS, LONGEST_S = 3, 60.0
#: items/s of all applications that are simulated at most: a second of more takes hundreds of megabytes
MOST_RATE = 100_000.0
#: seconds that a query is on the way to a device, and as many back
NETWORK_S = 0.0005
#: equally likely run times of a batch: quantiles of a lognormal distribution through the profile's median and p95
RUN_TIMES = 20
#: seconds that a plan for a promise or within a window may take; searches end by their nodes and steps before
SOLVE_S = 10.0


@dataclass(frozen=True)
class World:
    """The subject of a promise: a plan for a problem, under a stack.

    Attributes:
        recorded: arrivals as they came; ``factors``: how many times as many to expect, by application.
        medians: median run time over the 95th percentile by variant id, as measured; absent: they are alike.
        quantile: of demand, that the control loop plans for.
    """

    stack: str
    problem: Problem
    allocation: Allocation
    recorded: Recorded
    factors: Mapping[str, float] = field(default_factory=dict)
    medians: Mapping[str, float] = field(default_factory=dict)
    control: ControlSettings = field(default_factory=ControlSettings)
    quantile: float = QUANTILE


@dataclass(frozen=True)
class Expectation:
    """An application's figures in all windows together, with intervals for the next window.

    ``accuracy``: normalised percent, of items in time; None: none was. ``violations``: share (0 to 1) of items.
    """

    items: int
    accuracy: float | None
    violations: float
    accuracy_interval: Interval | None
    violations_interval: Interval


@dataclass(frozen=True)
class Simulated:
    window_s: int
    windows: int
    wall_s: float
    applications: Mapping[str, Expectation]


class NothingToPromise(Exception):
    pass


class _OutOfTime(Exception):
    pass


@dataclass(frozen=True)
class _LiveModel(Model):
    @property
    def id(self) -> str:
        return self.name

    def latency(self, kind: str) -> LatencyModel:
        return LatencyModel(self.points[kind])


class Windows(NamedTuple):
    length: int
    count: int


def windows_for(*worlds: World) -> Windows:
    """The windows that suit all of these worlds, by their load alone, never by time."""
    rate = max(1.0, *map(_rate, worlds))
    length = min(MOST_S, max(LEAST_S, round(ITEMS / WINDOWS / rate) - BEFORE_S))
    count = int(MOST_ITEMS / (rate * (length + BEFORE_S)))
    return Windows(length, min(WINDOWS, max(LEAST_WINDOWS, count)))


def _rate(world: World) -> float:
    return sum(world.recorded.rate(a.id) * world.factors.get(a.id, 1.0) for a in world.problem.applications)


def simulated(world: World, step: Callable[[float], None] | None = None, windows: Windows | None = None) -> Simulated:
    """Simulate windows.

    Args:
        step: called after each window with the share that is done (0 to 1).
        windows: None: those that suit this world.

    Raises:
        NothingToPromise: the arrivals are too many for :data:`MOST_RATE` or :data:`LONGEST_S`.
        SimulationError: a strategy or a policy broke its contract.
    """
    rate = _rate(world)
    if rate > MOST_RATE:
        raise NothingToPromise(f"{rate:,.0f} items/s are too many to simulate; at most {MOST_RATE:,.0f} are.")
    began, (length, count) = time.monotonic(), windows or windows_for(world)
    names = [a.id for a in world.problem.applications]
    totals = np.zeros((len(names), 3))
    accuracies: list[list[float]] = [[] for _ in names]
    violations: list[list[float]] = [[] for _ in names]
    for seed in range(count):
        try:
            figures = run_window(world, length, seed, progress=_until(began + LONGEST_S))
        except _OutOfTime:
            raise NothingToPromise(
                f"{rate:,.0f} items/s are too many to simulate: {seed} of {count} windows were done within "
                f"{LONGEST_S:g} s."
            ) from None
        for index, (items, in_time, accuracy) in enumerate(figures):
            totals[index] += items, in_time, accuracy
            if items:
                violations[index].append(1.0 - in_time / items)
            if in_time:
                accuracies[index].append(accuracy / in_time)
        if step is not None:
            step((seed + 1) / count)
    apart = world.recorded.seconds / length if world.recorded.seconds else math.inf
    found = {
        name: _expectation(*totals[index], accuracies[index], violations[index], apart)
        for index, name in enumerate(names)
        if totals[index][0]
    }
    return Simulated(length, count, time.monotonic() - began, found)


def run_window(
    world: World, length: int, seed: int, arrivals: Trace | None = None, progress: Callable[[float], None] | None = None
) -> list[tuple[float, float, float]]:
    """Simulate one window: items, items in time and the sum of their accuracies, by application.

    ``length``: seconds, without the :data:`BEFORE_S` before it; ``arrivals``: of both, None: like those recorded. What
    ``progress`` raises ends the window.
    """
    window = scenario(world, length, seed)
    if arrivals is not None:
        window = replace(window, arrivals=arrivals)
    return _figures(simulate(window, progress=progress), len(world.problem.applications))


def _until(deadline: float) -> Callable[[float], None]:
    def check(_share: float) -> None:
        if time.monotonic() >= deadline:
            raise _OutOfTime

    return check


def _figures(run: SimulationResults, applications: int) -> list[tuple[float, float, float]]:
    record, arrivals = run.record, run.scenario.arrivals
    counted = np.asarray(arrivals.times) >= BEFORE_S
    application = np.asarray(arrivals.applications, dtype=int)[counted]
    outcome = np.frombuffer(record.outcome, dtype=np.uint8)[counted]
    variant = np.frombuffer(record.variant, dtype=np.int32)[counted]
    accuracy = np.array([accuracy for _, _, accuracy in record.variants] or [0.0])
    good = outcome == IN_TIME
    items = np.bincount(application, minlength=applications)
    in_time = np.bincount(application[good], minlength=applications)
    sums = np.bincount(application[good], weights=accuracy[variant[good]], minlength=applications)
    return list(zip(items.tolist(), in_time.tolist(), sums.tolist(), strict=True))


def _expectation(
    items: float,
    in_time: float,
    accuracy: float,
    accuracies: Sequence[float],
    violations: Sequence[float],
    apart: float,
) -> Expectation:
    return Expectation(
        items=int(items),
        accuracy=float(accuracy / in_time) if in_time else None,
        violations=float(1.0 - in_time / items),
        accuracy_interval=of_windows(accuracies, apart).clipped(0.0, 100.0) if accuracies else None,
        violations_interval=of_windows(violations, apart).clipped(0.0, 1.0),
    )


def scenario(world: World, length: int, seed: int) -> Scenario:
    problem = replace(world.problem, time_limit_s=SOLVE_S, milp_s=None)
    names = tuple(a.id for a in problem.applications)
    known = Recorded({name: world.recorded.queries.get(name, ()) for name in names}, world.recorded.rows)
    history = known.history(world.factors) or [(-1, {a.id: a.demand for a in problem.applications})]
    return Scenario(
        name="window",
        models=tuple(_model(variant, world.medians.get(variant.id, 1.0)) for variant in problem.variants),
        arrivals=trace(known, BEFORE_S + length, world.factors, seed),
        devices=tuple((device.id, device.type) for device in problem.devices),
        slo_s={a.id: a.slo_s for a in problem.applications},
        max_resident={d.type: d.max_resident for d in problem.devices if d.max_resident is not None},
        load_time_s=_load_s(problem, world.allocation),
        network_s=NETWORK_S,
        run_ratios={variant.id: run_ratios(world.medians.get(variant.id, 1.0)) for variant in problem.variants},
        seed=seed,
        control=world.control,
        stack=world.stack,
        start=Start(problem, world.allocation, history, world.quantile),
    )


def _model(variant, median: float) -> Model:
    points = {
        kind: tuple((batch, seconds * median) for batch, seconds in profile.points)
        for kind, profile in variant.profiles.items()
    }
    return _LiveModel(variant.application, variant.id, variant.accuracy, points)


def run_ratios(median: float) -> tuple[float, ...]:
    """Equally likely lognormal run times over the median; the 95th is 1 / median."""
    deviation = -math.log(min(max(median, 1e-3), 1.0)) / NormalDist().inv_cdf(0.95)
    quantiles = [NormalDist().inv_cdf((place + 0.5) / RUN_TIMES) for place in range(RUN_TIMES)]
    return tuple(math.exp(deviation * quantile) for quantile in quantiles)


def _load_s(problem: Problem, allocation: Allocation) -> float:
    kinds = {device.id: device.type for device in problem.devices}
    variants = {variant.id: variant for variant in problem.variants}
    times = [variants[p.variant].profiles[kinds[p.device]].load_s for p in allocation.placements]
    return statistics.median(times) if times else 0.0
