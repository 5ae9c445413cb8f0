"""The section on InfAdapter (Salmani et al., EuroMLSys '23), in its own world.

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
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, pvariance

from scheduler.allocation.problem import (
    ApplicationDemand,
    CandidateVariant,
    CostWeights,
    DeviceResources,
    LatencyProfile,
    Problem,
)
from scheduler.simulation.largest_second import MINUTE, TREND
from scheduler.stacks import strategies
from scheduler.stacks.infadapter.capacity_line import CapacityLine, fitted

from .page import Claim, Context, Grid, Results, Section, claim, number, percent
from .runs import Case, Outcome
from .worlds import World

APPLICATION, KIND, SLO_MS = "resnet", "core", 750
#: cores of the experiments, and cores and queries/s of the plans of Figure 2
BUDGET, FEWER, FIGURE_2 = 20, 14, 75.0
PERIOD_S = 30
#: weights of a core; the second one is that of the paper's experiments
BETAS = (0.0125, 0.05, 0.2)
BETA = 0.05
#: wall seconds that a solve may take, so that few searches are ended by it on a busy machine
SOLVE_S = 120
#: seconds of a trace, and days of the trace before those that are used (the paper's forecaster was trained on them)
TRACE_S, TRAINED_DAYS, DAY_S = 1200, 14, 86_400
BURSTY, STEADY = "bursty", "steady"
#: parts of the bursty sample (Section 5): the load before the spike, the spike, the load after it
BEFORE, SPIKE, AFTER = slice(0, 600), slice(600, 800), slice(1000, 1200)
#: how far the load after the spike may be from that before, as a part of it
BACK = 0.25

#: accuracy of ImageNet in percent, and seconds until an instance is ready, from the published configuration
VARIANTS = {
    "resnet18": (69.758, 0.43177), "resnet34": (73.314, 0.72401), "resnet50": (76.13, 0.98545),
    "resnet101": (77.374, 1.94794), "resnet152": (78.312, 2.85113),
}  # fmt: skip
BEST = max(accuracy for accuracy, _ in VARIANTS.values())

OURS, SINGLE, DEFAULT = "infadapter", "ms+", "nereus"
#: VPA+ with each of its variants
VERTICAL = ("vpa+-fast", "vpa+-middle", "vpa+")

Points = dict[str, list[tuple[int, float]]]


def capacities(data: Path) -> Points:
    """(cores, queries/s) by variant, ascending."""
    points: Points = {}
    with (data / "resnet_cpu_capacity.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["slo_ms"]) == SLO_MS:
                points.setdefault(row["variant"], []).append((int(row["cpu_cores"]), float(row["capacity_qps"])))
    return {variant: sorted(some) for variant, some in points.items()}


def _lines(points: Points) -> dict[str, CapacityLine]:
    return {variant: fitted(some) for variant, some in points.items()}


def _plan(points: Points, stack: str, budget: int = FEWER) -> tuple[dict[str, int], float]:
    slopes = {variant: line.slope for variant, line in _lines(points).items()}
    problem = Problem(
        tuple(DeviceResources(f"{KIND}-{i}", KIND) for i in range(budget)),
        (ApplicationDemand(APPLICATION, SLO_MS / 1000, FIGURE_2),),
        tuple(
            CandidateVariant(
                variant,
                APPLICATION,
                VARIANTS[variant][0],
                {KIND: LatencyProfile(((1, 1 / slopes[variant]),), load_s=VARIANTS[variant][1])},
                capacities={KIND: tuple(some)},
            )
            for variant, some in points.items()
        ),
        costs=CostWeights(core=BETA, budget=budget),
    )
    plan = strategies.get(stack)(problem)
    return dict(Counter(placement.variant for placement in plan.placements)), BEST - plan.accuracy


def worlds(data: Path, into: Path) -> dict[tuple[str, float | None, str], World]:
    """The worlds by trace, beta and forecaster; beta None: just the budget's cores.

    Args:
        data: folder with ``resnet_cpu_capacity.csv`` and ``twitter_qps.txt.bz2``.
        into: where these are written in the simulator's format.
    """
    rates = _converted(data, into)
    made = {}
    for trace in (BURSTY, STEADY):
        base = {
            "profiles": "profiles.csv",
            "capacities": "capacities.csv",
            "latency": "p50_ms",
            "slo_ms": {"default": SLO_MS},
            "seed": 1,
            "trace": f"{trace}.csv",
        }
        control = {"period_s": PERIOD_S, "initial_qps": rates[trace], "solve_s": SOLVE_S}
        # New instances are made beside the old ones, as in the paper's cluster, which has more cores than the budget.
        twice = {"devices": {KIND: 2 * BUDGET}, "max_resident": {KIND: 1}, "make_before_break": True}
        for beta, forecaster in (*((beta, TREND) for beta in BETAS), (BETA, MINUTE)):
            values = {**base, **twice, "name": f"InfAdapter, {trace}, beta {beta:g}, {forecaster}"}
            values |= {"costs": {"core": beta, "budget": BUDGET}, "control": {**control, "forecaster": forecaster}}
            made[trace, beta, forecaster] = World(json.dumps(values), into)
        values = {**base, "name": f"InfAdapter, {trace}, all cores", "devices": {KIND: BUDGET}, "control": control}
        made[trace, None, TREND] = World(json.dumps(values), into)
    return made


def _converted(data: Path, into: Path) -> dict[str, float]:
    into.mkdir(parents=True, exist_ok=True)
    points = capacities(data)
    profile = ["application,variant,accuracy_normalized,device_type,batch,p50_ms,load_ms\n"]
    capacity = ["application,variant,device_type,cores,items_s\n"]
    for variant, line in _lines(points).items():
        accuracy, load_s = VARIANTS[variant]
        profile.append(f"{APPLICATION},{variant},{accuracy},{KIND},1,{1000 / line.slope:.6f},{load_s * 1000}\n")
        capacity += [f"{APPLICATION},{variant},{KIND},{cores},{rate}\n" for cores, rate in points[variant]]
    (into / "profiles.csv").write_text("".join(profile))
    (into / "capacities.csv").write_text("".join(capacity))
    with bz2.open(data / "twitter_qps.txt.bz2", "rt") as file:
        seconds = [float(line) for line in file][TRAINED_DAYS * DAY_S :]
    rates = {}
    for name, sample in samples(seconds).items():
        (into / f"{name}.csv").write_text("arrival_ms,application\n" + "".join(_arrivals(sample)))
        rates[name] = sum(sample[:60]) / 60
    return rates


def samples(seconds: Sequence[float]) -> dict[str, Sequence[float]]:
    """The 20 minutes, from whole minutes on, that are most like the paper's.

    The bursty sample has the highest spike over a load that is back after it, the steady one the least deviation.
    """
    windows = [seconds[start : start + TRACE_S] for start in range(0, len(seconds) - TRACE_S + 1, 60)]
    windows = [window for window in windows if min(map(fmean, (window[BEFORE], window[SPIKE], window[AFTER]))) > 0]
    back = [window for window in windows if abs(fmean(window[AFTER]) / fmean(window[BEFORE]) - 1) <= BACK]
    return {
        BURSTY: max(back, key=lambda window: fmean(window[SPIKE]) / fmean(window[BEFORE])),
        STEADY: min(windows, key=lambda window: pvariance(window) / fmean(window) ** 2),
    }


def _arrivals(rates: Sequence[float]) -> list[str]:
    numbers, made = random.Random(1), []
    for second, rate in enumerate(rates):
        times = sorted(numbers.random() for _ in range(round(rate)))
        made += [f"{(second + at) * 1000:.6f},{APPLICATION}\n" for at in times]
    return made


# --- the section ------------------------------------------------------------------------------------------------------


def _label(stack: str, beta: float) -> str:
    return f"{stack}, beta {beta:g}"


def _grid(context: Context) -> Grid:
    made = worlds(context.data.parent / "infadapter", context.runner.folder / "infadapter")
    return {
        trace: {
            **{_label(one, beta): Case(made[trace, beta, TREND], one) for one in (OURS, SINGLE) for beta in BETAS},
            f"{_label(OURS, BETA)}, {MINUTE}": Case(made[trace, BETA, MINUTE], OURS),
            **{stack: Case(made[trace, BETA, TREND], stack) for stack in VERTICAL},
            DEFAULT: Case(made[trace, None, TREND], DEFAULT),
        }
        for trace in (BURSTY, STEADY)
    }


def _loss(outcome: Outcome) -> float:
    return BEST - outcome.accuracy


def _cores(outcome: Outcome) -> float:
    return outcome.summary["mean_cost"]


def _cell(outcome: Outcome) -> str:
    return f"{percent(outcome.violations, 2)} / {number(_loss(outcome))} / {number(_cores(outcome), 1)}"


def _claims(context: Context, results: Results) -> Iterator[Claim]:
    points = capacities(context.data.parent / "infadapter")
    yield from _of_capacities(points)
    yield from _of_plans(points)
    labels = {_label(stack, beta) for stack in (OURS, SINGLE) for beta in BETAS} | {*VERTICAL}
    if all(labels <= cells.keys() for cells in results.values()):
        yield from _of_runs(results)


def _of_capacities(points: Points) -> Iterator[Claim]:
    fits = {variant: line.r_squared(points[variant]) for variant, line in _lines(points).items()}
    finding = "over all core counts " + ", ".join(f"{value:.3f} ({variant[6:]})" for variant, value in fits.items())
    close = abs(fits["resnet18"] - 0.996) < 0.002 and abs(fits["resnet50"] - 0.994) < 0.002
    yield claim("R² of the regressions of ResNet18 and 50: 0.996, 0.994 (Fig. 6)", finding, close)
    at = {variant: dict(some) for variant, some in points.items()}
    for fast, slow in (("resnet18", "resnet50"), ("resnet50", "resnet152")):
        few, many = at[fast][8], at[slow][20]
        sentence = f"{fast} on 8 cores sustains almost what {slow} does on 20 (Fig. 1)"
        yield claim(sentence, f"{few:g}/s and {many:g}/s", abs(few - many) <= 0.2 * max(few, many))


def _of_plans(points: Points) -> Iterator[Claim]:
    (several, loss), (single, alone) = (_plan(points, stack) for stack in (OURS, SINGLE))
    finding = ", ".join(f"{variant}: {cores}" for variant, cores in single.items())
    yield claim("With 14 cores MS serves 75/s with resnet50 at best (Fig. 2)", finding, [*single] == ["resnet50"])
    paper = {"resnet50": 2, "resnet101": 6, "resnet152": 6}
    total = sum(dict(points[variant])[cores] for variant, cores in paper.items())
    finding = ", ".join(f"{variant}: {cores}" for variant, cores in several.items())
    reason = f"the published capacities of that set add up to {total:g}/s, below 75"
    sentence = "With 14 cores InfAdapter picks resnet50: 2, resnet101: 6, resnet152: 6"
    yield claim(sentence, finding, several == paper if several == paper or total >= FIGURE_2 else reason)
    sentence = "A set of variants loses less accuracy than one (Observation 2)"
    yield claim(sentence, f"{loss:.2f} and {alone:.2f} with 14 cores", loss < alone)


def _of_runs(results: Results) -> Iterator[Claim]:
    bursty, steady = results[BURSTY], results[STEADY]
    ours, single = _label(OURS, BETA), _label(SINGLE, BETA)
    worst = max(VERTICAL, key=lambda stack: bursty[stack].violations)
    fewer = 1 - bursty[ours].violations / max(bursty[worst].violations, 1e-9)
    finding = f"{fewer:.0%}, {percent(bursty[ours].violations, 2)} against {percent(bursty[worst].violations, 2)} of "
    yield claim("Up to 65% fewer violations than VPA+ (bursty)", f"{finding}`{worst}`", fewer >= 0.65)
    dearest = max(VERTICAL, key=lambda stack: _cores(bursty[stack]))
    saved = {beta: 1 - _cores(bursty[_label(OURS, beta)]) / _cores(bursty[dearest]) for beta in BETAS}
    finding = ", ".join(f"{part:.0%} with beta {beta:g}" for beta, part in saved.items())
    finding += f"; `{dearest}` has {_cores(bursty[dearest]):.1f} cores"
    yield claim("Up to 33% less cost than VPA+ (bursty)", finding, max(saved.values()) >= 0.33)
    for trace, cells in results.items():
        loss, alone = _loss(cells[ours]), _loss(cells[single])
        finding = f"loss {loss:.2f} and {alone:.2f}, violations {percent(cells[ours].violations, 2)} and "
        finding += percent(cells[single].violations, 2)
        yield claim(f"Less accuracy loss than MS+ ({trace})", finding, loss < alone)
        by_beta = {beta: cells[_label(OURS, beta)] for beta in BETAS}
        finding = "; ".join(f"{b:g}: loss {_loss(one):.2f}, {_cores(one):.1f} cores" for b, one in by_beta.items())
        # As shown: plans whose search was ended by its time limit differ by less.
        losses = [round(_loss(one), 1) for one in by_beta.values()]
        cores = [round(_cores(one), 1) for one in by_beta.values()]
        ordered = losses == sorted(losses) and cores == sorted(cores, reverse=True)
        yield claim(f"The larger beta, the cheaper and less accurate ({trace}; Fig. 7, 9, 10)", finding, ordered)
    losses = [_loss(steady[stack]) for stack in VERTICAL]
    loss = _loss(steady[ours])
    finding = f"{loss:.2f}; VPA+ " + ", ".join(f"{value:.2f}" for value in losses)
    sentence = "Less accuracy loss than all but VPA+ with resnet152 (steady; Fig. 8)"
    yield claim(sentence, finding, losses[-1] <= loss < min(losses[:-1]))


SECTIONS = (
    Section(
        "infadapter", "InfAdapter's world: ResNets within a budget of cores",
        f"Violations / accuracy loss below {BEST:g} (ImageNet) / cores, the mean of what plans use. Five ResNets, an "
        f"SLO of {SLO_MS} ms, batches of one, at most {BUDGET} cores in use, and 20 more on which new instances load "
        f"before old ones go; a plan every {PERIOD_S} s, and in bursts. Two samples of 20 minutes from the last two "
        "days of the published trace: the highest spike over a load that is back after it, and the steadiest. The "
        "planner knows the published capacities by their regression. A core takes for a query what the slope of that "
        "regression says, whatever the instance's size; instances of one variant are one-core devices that take their "
        "queries in turn. What cannot be in time is refused, not answered late. `vpa+-fast`, `vpa+-middle` and `vpa+` "
        "have ResNet18, 50 and 152; `nereus` uses all 20 cores. Demand is forecast as live (`trend`); where a row "
        "names `minute` by the largest second of the next minute, as the paper's LSTM does, by a regression that was "
        "fitted to days 1 to 14 of the trace.",
        _grid, _claims, corner="stack", cell=_cell, turned=True,
    ),
)  # fmt: skip
