"""INFaaS (Romero et al., ATC '21): its own objective, the cost of instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .page import Claim, Context, Grid, Results, Section, both, claim, number, percent
from .proteus import of
from .runs import Outcome
from .worlds import published

#: the stack of the paper's claims, and those that it is compared with
OURS, EXACT, BASELINES = "infaas-greedy", "infaas-ilp", ("sm+", "clipper+")
STACKS = ("clipper+", "sm+", "infaas-greedy", "infaas-ilp", "infaas-accuracy", "nereus")
#: relative costs of a second: prices of GPUs over CPUs in INFaaS, Section 6.2, 0.498 over 0.031
COST = {"pascal": 16, "ampere": 16}
LOAD_S = 1.0


def _grid(context: Context) -> Grid:
    trace = "zipf_exponential"
    world = published(context.data, trace, name=f"{trace}, costs", cost=COST, load_time_s=LOAD_S)
    return {trace: of(world, STACKS)}


def _cell(outcome: Outcome) -> str:
    return f"{both(outcome)} / {number(outcome.summary['mean_cost'], 1)}"


def _claims(_context: Context, results: Results) -> Iterator[Claim]:
    (outcomes,) = results.values()
    if not {OURS, EXACT, *BASELINES} <= outcomes.keys():
        return
    ours = outcomes[OURS]
    cost = [outcomes[name].summary["mean_cost"] / max(ours.summary["mean_cost"], 1e-9) for name in BASELINES]
    late = [outcomes[name].violations / max(ours.violations, 1e-9) for name in BASELINES]
    sentence = "INFaaS costs 1.23 times less than SM+ and Clipper+ (Section 6.1)"
    yield claim(sentence, _times(cost), min(cost) > 1)
    reason = "the paper adds machines as load rises, these are given, and `clipper+` keeps them all"
    yield claim("SM+ and Clipper+ violate 2.54 and 1.63 times as often (Section 6.1, Fig. 5)", _times(late), reason)
    finding = f"`{EXACT}`: {outcomes[EXACT].summary['max_solve_s']:.2f} s at the most, with SCIP"
    reason = "another solver, and a cluster of 40 devices"
    yield claim("The ILP takes 23 to 50 s and is impractical to use (Section 4.2.1)", finding, reason)
    sentence = "INFaaS violates less than 4% on average (Section 6.1)"
    yield claim(sentence, percent(ours.violations), ours.violations < 0.04)


def _times(ratios: Sequence[float]) -> str:
    return " and ".join(f"{ratio:.2f}" for ratio in ratios) + f" times `{OURS}`"


SECTIONS = (
    Section(
        "infaas", "INFaaS and its baselines, by cost",
        f"Violations / effective accuracy / mean cost. A second of a GPU costs {COST['ampere']} times one of a CPU "
        f"device; all devices together cost {20 + 20 * COST['ampere']}. A load occupies its device for {LOAD_S:g} s. "
        "`infaas-greedy` is the system that the paper built and measured (Section 4.2.2). It and the paper's ILP "
        "(`infaas-ilp`) take the cheapest instances that serve the load with 5% to spare, whatever their accuracy, as "
        "the paper does where queries ask for none. `infaas-accuracy` is Proteus' version, with accuracy for its "
        "objective; its headroom is the quantile that demand is planned for. Variants count where a batch takes half "
        "of the SLO at most, as for Proteus; INFaaS and InfAdapter would take slower ones, too. Instances have devices "
        "of their own, where the paper packs several onto a worker.",
        _grid, _claims, corner="stack", cell=_cell, turned=True,
    ),
)  # fmt: skip
