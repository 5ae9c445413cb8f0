"""InfAdapter's world: ResNets on CPU cores, two samples of its trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scheduler.allocation import strategies
from scheduler.simulation.learned import TREND

from .. import infadapter as world
from ..infadapter import BETA, BURSTY, STEADY
from ..page import Context, number, percent, table
from ..runs import Case, Outcome
from .common import Claim, claimed, cut_short, joined, verdict

NAME = "infadapter"
TITLE = "InfAdapter's world: ResNets within a budget of cores"
WEIGHED, VERTICAL, DEFAULT = ("infadapter", "ms+"), ("vpa+-fast", "vpa+-middle", "vpa+"), "nereus"
OURS = WEIGHED[0]
#: by stack: the variant that it has
FIXED = {"vpa+-fast": "ResNet18", "vpa+-middle": "ResNet50", "vpa+": "ResNet152"}

#: by trace and label
Found = dict[str, dict[str, Outcome]]


def _cases(context: Context) -> dict[str, dict[str, Case]]:
    every = world.worlds(context.data.parent / "infadapter", context.runner.folder / "infadapter", context.quick)
    return {
        trace: {
            **{
                _label(stack, beta): Case(every[trace, beta, TREND], stack) for stack in WEIGHED for beta in world.BETAS
            },
            **{_learned(name): Case(every[trace, BETA, name], OURS) for name in world.LEARNING},
            **{stack: Case(every[trace, BETA, TREND], stack) for stack in VERTICAL},
            DEFAULT: Case(every[trace, None, TREND], DEFAULT),
        }
        for trace in (BURSTY, STEADY)
    }


def _label(stack: str, beta: float) -> str:
    return f"{stack}, beta {beta:g}"


def _learned(forecaster: str) -> str:
    return f"{_label(OURS, BETA)}, {forecaster}"


def cases(context: Context) -> list:
    return [case for some in _cases(context).values() for case in some.values()]


def body(context: Context) -> str:
    found = {trace: context.outcomes(some) for trace, some in _cases(context).items()}
    points = world.capacities(context.data.parent / "infadapter")
    return joined(
        context.left_out(cases(context)),
        f"Five ResNets, an SLO of {world.SLO_MS} ms, batches of one, at most {world.BUDGET} cores in use, and 20 more "
        f"on which new instances load before old ones go; a plan every {world.PERIOD_S} s, and in bursts. Two samples "
        "of 20 minutes from the last two days of the published trace: the highest spike over a load that is back after "
        "it, and the steadiest. The planner knows the published capacities by their regression. A core takes for a "
        "query what the slope of that regression says, whatever the instance's size; instances of one variant are "
        "one-core devices that take their queries in turn. Accuracies are of ImageNet; *loss* is below "
        f"{world.BEST:g}. Cores are the mean of what plans use. What cannot be in time is refused, not answered late. "
        "`nereus` has 20 cores, uses all of them, and keeps several variants on each. Demand is forecast as live "
        "(`trend`); where a row names `minute` by the largest second of the next minute, as the paper's LSTM does, and "
        "where it names `learned` by the mean of the next 30 s: both by regressions that were fitted to days 1 to 14 "
        "of the trace and go on learning.",
        *(f"The {trace} sample:\n\n{_table(some)}" for trace, some in found.items()),
        claimed(_claims(points, found) if points else (), "InfAdapter"),
        cut_short({f"{label}, {trace}": outcome for trace, some in found.items() for label, outcome in some.items()}),
    )


def _table(found: dict[str, Outcome]) -> str:
    head = ("stack", "violations", "accuracy loss", "cores", "median ms", "p99 ms", "loads")
    return table(
        head,
        [
            (
                f"`{label}`" + (f" ({FIXED[label]})" if label in FIXED else ""),
                percent(outcome.summary["violation_ratio"], 2),
                number(_loss(outcome), 2),
                number(outcome.summary["mean_cost"], 1),
                number(outcome.summary["median_latency_ms"], 0),
                number(outcome.summary["p99_latency_ms"], 0),
                f"{outcome.summary['loads']:,}",
            )
            for label, outcome in found.items()
        ],
    )


def _loss(outcome: Outcome) -> float | None:
    accuracy = outcome.summary["effective_accuracy"]
    return None if accuracy is None else world.BEST - accuracy


def _plan(points: world.Points, stack: str, budget: int) -> tuple[dict[str, int], float]:
    """Cores by variant, and the accuracy loss, of a plan for Figure 2's load."""
    plan = strategies.get(stack)(world.problem(points, world.FIGURE_2, budget))
    return dict(Counter(placement.variant for placement in plan.placements)), world.BEST - plan.accuracy


def _claims(points: world.Points, found: Found) -> Iterator[Claim]:
    yield from _of_capacities(points)
    yield from _of_plans(points)
    if all(found[trace].keys() >= {_label(*pair) for pair in _pairs()} | {*VERTICAL} for trace in found):
        yield from _of_runs(found)


def _pairs() -> list[tuple[str, float]]:
    return [(stack, beta) for stack in WEIGHED for beta in world.BETAS]


def _of_capacities(points: world.Points) -> Iterator[Claim]:
    fits = {variant: line.r_squared(points[variant]) for variant, line in world.lines(points).items()}
    fitted = ", ".join(f"{value:.3f} ({variant.removeprefix('resnet')})" for variant, value in fits.items())
    close = abs(fits["resnet18"] - 0.996) < 0.002 and abs(fits["resnet50"] - 0.994) < 0.002
    yield (
        "R² of the regressions of ResNet18 and 50: 0.996, 0.994 (Fig. 6)",
        f"over all core counts {fitted}",
        verdict(close),
    )
    at = {variant: dict(some) for variant, some in points.items()}
    for fast, slow in (("resnet18", "resnet50"), ("resnet50", "resnet152")):
        one, other = at[fast][8], at[slow][20]
        claim = f"{_named(fast)} on 8 cores sustains almost what {_named(slow)} does on 20 (Fig. 1)"
        yield claim, f"{one:g}/s and {other:g}/s", verdict(abs(one - other) <= 0.2 * max(one, other))


def _named(variant: str) -> str:
    return f"ResNet{variant.removeprefix('resnet')}"


def _of_plans(points: world.Points) -> Iterator[Claim]:
    (many, loss), (one, alone) = (_plan(points, stack, 14) for stack in WEIGHED)
    finding = ", ".join(f"{_named(variant)}: {cores}" for variant, cores in one.items())
    yield "With 14 cores MS serves 75/s with ResNet50 at best (Fig. 2)", finding, verdict([*one] == ["resnet50"])
    at = {variant: dict(some) for variant, some in points.items()}
    total = at["resnet50"][2] + at["resnet101"][6] + at["resnet152"][6]
    finding = ", ".join(f"{_named(variant)}: {cores}" for variant, cores in many.items())
    claim = "With 14 cores InfAdapter picks ResNet50: 2, ResNet101: 6, ResNet152: 6"
    reason = f"not comparable: the published capacities of that set add up to {total:g}/s, below 75"
    same = many == {"resnet50": 2, "resnet101": 6, "resnet152": 6}
    yield claim, finding, "reproduced" if same else reason if total < world.FIGURE_2 else "refuted"
    claim = "A set of variants loses less accuracy than one (Observation 2)"
    yield claim, f"{loss:.2f} and {alone:.2f} with 14 cores", verdict(loss < alone)


def _of_runs(found: Found) -> Iterator[Claim]:
    def ratio(trace: str, label: str) -> float:
        return found[trace][label].summary["violation_ratio"]

    def cores(trace: str, label: str) -> float:
        return found[trace][label].summary["mean_cost"]

    ours, single = _label("infadapter", BETA), _label("ms+", BETA)
    worst = max(VERTICAL, key=lambda stack: ratio(BURSTY, stack))
    fewer = 1 - ratio(BURSTY, ours) / ratio(BURSTY, worst) if ratio(BURSTY, worst) else 0.0
    finding = f"{fewer:.0%}, {percent(ratio(BURSTY, ours), 2)} against {percent(ratio(BURSTY, worst), 2)} of `{worst}`"
    yield "Up to 65% fewer violations than VPA+ (bursty)", finding, verdict(fewer >= 0.65)
    dearest = max(VERTICAL, key=lambda stack: cores(BURSTY, stack))
    saved = {beta: 1 - cores(BURSTY, _label("infadapter", beta)) / cores(BURSTY, dearest) for beta in world.BETAS}
    finding = ", ".join(f"{part:.0%} with beta {beta:g}" for beta, part in saved.items())
    finding += f"; `{dearest}` has {cores(BURSTY, dearest):.1f} cores"
    yield "Up to 33% less cost than VPA+ (bursty)", finding, verdict(max(saved.values()) >= 0.33)
    for trace in (BURSTY, STEADY):
        loss, alone = (_loss(found[trace][label]) or 0.0 for label in (ours, single))
        finding = f"loss {loss:.2f} and {alone:.2f}, violations {percent(ratio(trace, ours), 2)} and "
        finding += percent(ratio(trace, single), 2)
        yield f"Less accuracy loss than MS+ ({trace})", finding, verdict(loss < alone)
        losses = [_loss(found[trace][_label("infadapter", beta)]) or 0.0 for beta in world.BETAS]
        used = [cores(trace, _label("infadapter", beta)) for beta in world.BETAS]
        finding = "; ".join(
            f"{beta:g}: loss {a:.2f}, {b:.1f} cores" for beta, a, b in zip(world.BETAS, losses, used, strict=True)
        )
        # As shown: plans whose search was ended by its time limit differ by less.
        losses, used = [round(loss, 1) for loss in losses], [round(count, 1) for count in used]
        ordered = losses == sorted(losses) and used == sorted(used, reverse=True)
        yield f"The larger beta, the cheaper and less accurate ({trace}; Fig. 7, 9, 10)", finding, verdict(ordered)
    others = [_loss(found[STEADY][stack]) or 0.0 for stack in VERTICAL[:-1]]
    loss, full = _loss(found[STEADY][ours]) or 0.0, _loss(found[STEADY]["vpa+"]) or 0.0
    finding = f"{loss:.2f}; VPA+ " + ", ".join(f"{value:.2f}" for value in (*others, full))
    claim = "Less accuracy loss than all but VPA+ with ResNet152 (steady; Fig. 8)"
    yield claim, finding, verdict(full <= loss < min(others))
