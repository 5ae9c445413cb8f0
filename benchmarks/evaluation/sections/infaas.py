"""INFaaS with its own objective, the cost of instances.

The section shows the costs of the cheapest instances and their loss of accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..page import Context, number, percent, table
from ..runs import Case, Outcome
from ..worlds import World
from ..worlds import published as world
from .common import Claim, claimed, cut_short, joined, verdict

NAME = "infaas"
TITLE = "INFaaS and its baselines, by cost"
TRACES = ("zipf_exponential",)
STACKS = ("clipper+", "sm+", "infaas-greedy", "infaas-ilp", "infaas-accuracy", "nereus")
#: the stack of the paper's claims, and those that it is compared with
OURS, EXACT, BASELINES = "infaas-greedy", "infaas-ilp", ("sm+", "clipper+")
#: relative costs of a second: prices of GPUs over CPUs in INFaaS, Section 6.2, 0.498 over 0.031
COST = {"pascal": 16, "ampere": 16}
LOAD_S = 1.0


def _world(context: Context, trace: str) -> World:
    name = f"{trace}, with costs"
    return world(context.data, trace, context.quick, name=name, cost=COST, load_time_s=LOAD_S)


def _cases(context: Context, trace: str) -> dict[str, Case]:
    return {name: Case(_world(context, trace), name) for name in STACKS}


def cases(context: Context) -> list:
    return [case for trace in TRACES for case in _cases(context, trace).values()]


def body(context: Context) -> str:
    parts = []
    for trace in TRACES:
        outcomes = context.outcomes(_cases(context, trace))
        rows = [
            (
                f"`{label}`", percent(o.summary["violation_ratio"]), number(o.summary["effective_accuracy"]),
                number(o.summary["mean_cost"], 1), f"{o.summary['loads']:,}", f"{o.summary['solves']:,}",
                number(o.summary["max_solve_s"], 2),
            )
            for label, o in outcomes.items()
        ]  # fmt: skip
        head = ("stack", "violations", "effective accuracy", "mean cost", "loads", "solves", "longest solve, s")
        parts += [f"### {trace}", table(head, rows) if rows else "No results."]
        parts += [claimed(_claims(outcomes), "INFaaS"), cut_short(outcomes)]
    return joined(
        context.left_out(cases(context)),
        f"A second of a GPU costs {COST['ampere']} times one of a CPU device; all devices together cost "
        f"{20 + 20 * COST['ampere']}. A load occupies its device for {LOAD_S:g} s. `infaas-greedy` is the "
        "system that the paper built and measured (Section 4.2.2). It and the paper's ILP (`infaas-ilp`) take the "
        "cheapest instances that serve the load with 5% to spare, whatever their accuracy, as the paper does where "
        "queries ask for none. `infaas-accuracy` is Proteus' version, with accuracy for its objective; its headroom is "
        "the quantile that demand is planned for. Variants count where a batch takes half of the SLO at most, as for "
        "Proteus; INFaaS and InfAdapter would take slower ones, too. Instances have devices of their "
        "own, where the paper packs several onto a worker.",
        *parts,
    )


def _claims(outcomes: Mapping[str, Outcome]) -> Iterator[Claim]:
    """Yield the paper's comparison with its baselines beside these figures.

    Yields nothing where some figures are missing.
    """
    if not {OURS, *BASELINES} <= outcomes.keys():
        return
    ours = outcomes[OURS].summary
    cost = [outcomes[name].summary["mean_cost"] / max(ours["mean_cost"], 1e-9) for name in BASELINES]
    late = [outcomes[name].summary["violation_ratio"] / max(ours["violation_ratio"], 1e-9) for name in BASELINES]
    reason = "not comparable: the paper adds machines as load rises, these are given, and `clipper+` keeps them all"
    yield "INFaaS costs 1.23 times less than SM+ and Clipper+ (Section 6.1)", _times(cost), verdict(min(cost) > 1)
    yield "SM+ and Clipper+ violate 2.54 and 1.63 times as often (Section 6.1, Fig. 5)", _times(late), reason
    if EXACT in outcomes:
        longest = outcomes[EXACT].summary["max_solve_s"]
        found = f"`{EXACT}`: {longest:.2f} s at the most, with SCIP"
        reason = "not comparable: another solver, and a cluster of 40 devices"
        yield "The ILP takes 23 to 50 s and is impractical to use (Section 4.2.1)", found, reason
    kept = percent(ours["violation_ratio"])
    yield "INFaaS violates less than 4% on average (Section 6.1)", kept, verdict(ours["violation_ratio"] < 0.04)


def _times(ratios: Sequence[float]) -> str:
    return " and ".join(f"{ratio:.2f}" for ratio in ratios) + f" times `{OURS}`"
