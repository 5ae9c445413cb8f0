"""The world of InfAdapter (Salmani et al., EuroMLSys '23), as published.

Five ResNets on CPU cores, an SLO of 750 ms, a budget of 20 cores, a plan every 30 s. The published capacity of a
variant on n cores is what the planner knows. Each core is a device, and takes for a query what the slope of the
capacities says. Profiles, capacities and traces are brought into the simulator's format beside the kept runs; nothing
of them is kept elsewhere.
"""

from __future__ import annotations

import bz2
import csv
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scheduler.allocation.problem import (
    ApplicationDemand,
    CandidateVariant,
    CostWeights,
    DeviceResources,
    LatencyProfile,
    Problem,
)
from scheduler.simulation.learned import LEARNED, MINUTE, TREND
from scheduler.stacks.infadapter.capacity_line import CapacityLine, fitted

from .worlds import QUICK_S, World

APPLICATION, KIND, SLO_MS = "resnet", "core", 750
#: cores of the experiments, and of Figures 1 and 2
BUDGET, BUDGETS = 20, (8, 14, 20)
#: queries/s of Figure 2
FIGURE_2 = 75.0
PERIOD_S = 30
BETAS = (0.0125, 0.05, 0.2)
#: of the paper's experiments
BETA = 0.05
#: forecasters that learn; the second one forecasts what the paper's LSTM does
LEARNING = (LEARNED, MINUTE)
#: wall seconds that a solve may take, so that few searches are ended by it on a busy machine
SOLVE_S = 120
#: seconds of a trace, and days of the trace before those that are used (the paper's forecaster was trained on them)
TRACE_S, TRAINED_DAYS, DAY_S = 1200, 14, 86_400
BURSTY, STEADY = "bursty", "steady"
#: parts of the bursty sample (Section 5): the load before the spike, the spike, the load after it
BEFORE, SPIKE, AFTER = slice(0, 600), slice(600, 800), slice(1000, 1200)
#: how far the load after the spike may be from that before, as a part of it
BACK = 0.25


@dataclass(frozen=True)
class Variant:
    """A published variant.

    Attributes:
        accuracy: of ImageNet, top 1, in percent.
        load_s: until an instance is ready.
    """

    accuracy: float
    load_s: float


#: from the published configuration
VARIANTS: Mapping[str, Variant] = {
    "resnet18": Variant(69.758, 0.43177),
    "resnet34": Variant(73.314, 0.72401),
    "resnet50": Variant(76.13, 0.98545),
    "resnet101": Variant(77.374, 1.94794),
    "resnet152": Variant(78.312, 2.85113),
}
BEST = max(variant.accuracy for variant in VARIANTS.values())

Points = dict[str, list[tuple[int, float]]]


def capacities(data: Path) -> Points:
    """(cores, queries/s) by variant, ascending; {} where the file is missing."""
    found: Points = {}
    path = data / "resnet_cpu_capacity.csv"
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if int(row["slo_ms"]) == SLO_MS:
                    point = int(row["cpu_cores"]), float(row["capacity_qps"])
                    found.setdefault(row["variant"], []).append(point)
    return {variant: sorted(points) for variant, points in found.items()}


def lines(points: Points) -> dict[str, CapacityLine]:
    """The regression of each variant."""
    return {variant: fitted(some) for variant, some in points.items()}


def problem(points: Points, demand: float, budget: int, core: float = BETA) -> Problem:
    """One plan of that world, before anything is loaded."""
    slopes = {variant: line.slope for variant, line in lines(points).items()}
    return Problem(
        tuple(DeviceResources(f"{KIND}-{i}", KIND) for i in range(budget)),
        (ApplicationDemand(APPLICATION, SLO_MS / 1000, demand),),
        tuple(
            CandidateVariant(
                variant,
                APPLICATION,
                VARIANTS[variant].accuracy,
                {KIND: LatencyProfile(((1, 1 / slopes[variant]),), load_s=VARIANTS[variant].load_s)},
                capacities={KIND: tuple(some)},
            )
            for variant, some in points.items()
        ),
        costs=CostWeights(core=core, budget=budget),
    )


def worlds(data: Path, into: Path, quick: bool) -> dict[tuple[str, float | None, str], World]:
    """Return the worlds by trace, beta and forecaster.

    A beta of None stands for exactly the budget's cores, for stacks that use all there are.

    Args:
        data: folder with ``resnet_cpu_capacity.csv`` and ``twitter_qps.txt.bz2``.
        into: where these are written in the simulator's format.
    """
    rates = _converted(data, into)
    found = {}
    for trace in (BURSTY, STEADY):
        base = {
            "profiles": "profiles.csv",
            "capacities": "capacities.csv",
            "latency": "p50_ms",
            "slo_ms": {"default": SLO_MS},
            "seed": 1,
            "trace": f"{trace}.csv",
        }
        control = {"period_s": PERIOD_S, "initial_qps": rates.get(trace, 1.0), "solve_s": SOLVE_S}
        # New instances are made beside the old ones, as in the paper's cluster, which has more cores than the budget.
        twice = {"devices": {KIND: 2 * BUDGET}, "max_resident": {KIND: 1}, "make_before_break": True}
        first_s = QUICK_S if quick else None
        for beta, forecaster in (*((beta, TREND) for beta in BETAS), *((BETA, name) for name in LEARNING)):
            values = {**base, **twice, "name": f"InfAdapter, {trace}, beta {beta:g}, {forecaster}"}
            values |= {"costs": {"core": beta, "budget": BUDGET}, "control": {**control, "forecaster": forecaster}}
            found[trace, beta, forecaster] = World(json.dumps(values), into, first_s)
        values = {**base, "name": f"InfAdapter, {trace}, all cores", "devices": {KIND: BUDGET}, "control": control}
        found[trace, None, TREND] = World(json.dumps(values), into, first_s)
    return found


def _converted(data: Path, into: Path) -> dict[str, float]:
    """Write profiles, capacities and traces in the simulator's format.

    Where the published files are missing nothing is written, and the runs say so.

    Returns:
        The mean rate of the first minute of each trace, in queries/s.
    """
    into.mkdir(parents=True, exist_ok=True)
    points = capacities(data)
    if points:
        profile = ["application,variant,accuracy_normalized,device_type,batch,p50_ms,load_ms\n"]
        capacity = ["application,variant,device_type,cores,items_s\n"]
        for variant, line in lines(points).items():
            known = VARIANTS[variant]
            profile.append(
                f"{APPLICATION},{variant},{known.accuracy},{KIND},1,{1000 / line.slope:.6f},{known.load_s * 1000}\n"
            )
            capacity += [f"{APPLICATION},{variant},{KIND},{cores},{rate}\n" for cores, rate in points[variant]]
        (into / "profiles.csv").write_text("".join(profile))
        (into / "capacities.csv").write_text("".join(capacity))
    if not (data / "twitter_qps.txt.bz2").exists():
        return {}
    with bz2.open(data / "twitter_qps.txt.bz2", "rt") as file:
        seconds = [float(line) for line in file][TRAINED_DAYS * DAY_S :]
    rates = {}
    for name, sample in samples(seconds).items():
        (into / f"{name}.csv").write_text("arrival_ms,application\n" + "".join(_arrivals(sample)))
        rates[name] = sum(sample[:60]) / 60
    return rates


def samples(seconds: Sequence[float]) -> dict[str, Sequence[float]]:
    """Return the 20 minutes, from whole minutes on, that are most like the paper's.

    The bursty sample has the highest spike over a load that is back after it, the steady one the least deviation. Empty
    where no load is back after its spike.
    """
    windows = [seconds[start : start + TRACE_S] for start in range(0, len(seconds) - TRACE_S + 1, 60)]
    windows = [window for window in windows if min(map(_mean, (window[BEFORE], window[SPIKE], window[AFTER]))) > 0]
    back = [window for window in windows if abs(_mean(window[AFTER]) / _mean(window[BEFORE]) - 1) <= BACK]
    if not back:
        return {}
    return {
        BURSTY: max(back, key=lambda window: _mean(window[SPIKE]) / _mean(window[BEFORE])),
        STEADY: _steadiest(windows),
    }


def _steadiest(windows: Sequence[Sequence[float]]) -> Sequence[float]:
    def deviation(window: Sequence[float]) -> float:
        mean = _mean(window)
        return sum((rate - mean) ** 2 for rate in window) / mean**2

    return min(windows, key=deviation)


def _mean(rates: Sequence[float]) -> float:
    return sum(rates) / len(rates)


def _arrivals(rates: Sequence[float]) -> list[str]:
    """Return the lines of a trace with as many arrivals in each second as given.

    Times within a second are equally likely, with a fixed seed.
    """
    numbers, made = random.Random(1), []
    for second, rate in enumerate(rates):
        times = sorted(numbers.random() for _ in range(round(rate)))
        made += [f"{(second + at) * 1000:.6f},{APPLICATION}\n" for at in times]
    return made
