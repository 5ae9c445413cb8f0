"""End to end on the five traces, all stacks: the quantities of Fig. 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import published
from ..page import Context, number, percent
from ..runs import Outcome
from ..worlds import World, faster
from ..worlds import published as world
from .common import STACKS, Claim, both, claimed, compared, cut_short, joined, of, throughput, verdict

NAME = "end-to-end"
TITLE = "End to end"
#: the trace of Proteus' Section 6.2, and how many times as fast it is as heavy a load here: its accuracy then drops by
#: 4 points, in its Fig. 4 by 4.85; at its own speed by 0.6
PAPER, FASTER = "medium-normal_load", 1.7


def cases(context: Context) -> list:
    return [case for one in _worlds(context).values() for case in of(one).values()]


def _worlds(context: Context) -> dict[str, World]:
    traces = {trace: world(context.data, trace, context.quick) for trace in published.TRACES}
    fast = faster(context.data, context.runner.folder / "faster", PAPER, FASTER, context.quick)
    return {**traces, f"{PAPER}, {FASTER:g} times as fast": fast}


def body(context: Context) -> str:
    found = {name: context.outcomes(of(one)) for name, one in _worlds(context).items()}
    return joined(
        context.left_out(cases(context)),
        "Violations / effective accuracy / largest drop over 10 s. Everything starts cold, on a plan for 10 queries/s "
        "an application; `clipper-ht`, `clipper-ha` and `sommelier`, which place variants once, are placed for the "
        "trace's mean rates, as Proteus' authors did. Loads take no time here, so `nereus` keeps any number of "
        "variants warm where published stacks have one a device: the world above, with loads, is the fairer one.",
        compared("trace", found, _cell),
        f"Proteus' published simulator on the same traces, counted as strictly: {_quoted()}.",
        cut_short({f"{name}, {trace}": o for trace, some in found.items() for name, o in some.items()}),
        f"`{PAPER}` is the paper's trace, but a lighter load for these devices than for its authors' cluster; the "
        f"claims are judged at {FASTER:g} times its speed, where Proteus drops about as much as in the paper.",
        claimed(_claims([*found.values()][-1]), "Proteus"),
    )


def _cell(outcome: Outcome) -> str:
    return f"{both(outcome)} / {number(outcome.summary['max_accuracy_drop_10s'], 1)}"


def _quoted() -> str:
    return "; ".join(
        f"{trace} {percent(one.violations, 1)} / {one.accuracy:.2f} / {one.drop:.1f}"
        for trace, one in published.PROTEUS.items()
    )


def _claims(outcomes: Mapping[str, Outcome]) -> Iterator[Claim]:
    """Yield the claims of Proteus' Section 6.2 beside the figures of its trace.

    Yields nothing where some figures are missing.
    """
    rivals = [name for name in STACKS[:-1] if name != "proteus"]
    if not {"proteus", *rivals} <= outcomes.keys():
        return
    found = {name: outcomes[name].summary for name in ("proteus", *rivals)}
    violated = {name: summary["violation_ratio"] for name, summary in found.items()}
    accuracy = {name: summary["effective_accuracy"] or 0.0 for name, summary in found.items()}
    drop = {name: summary["max_accuracy_drop_10s"] or 0.0 for name, summary in found.items()}
    ht, ha, best = "clipper-ht", "clipper-ha", max(accuracy, key=accuracy.__getitem__)
    finding = f"{accuracy[ha]:.2f}, the best `{best}` with {accuracy[best]:.2f}"
    yield "Clipper-HA has the highest effective accuracy (Fig. 4)", finding, verdict(best == ha)
    others = max(ratio for name, ratio in violated.items() if name != ha)
    finding = f"{percent(violated[ha])}, others at most {percent(others)}"
    yield "Clipper-HA violates most (Fig. 4)", finding, verdict(violated[ha] > others)
    finding = f"accuracy {accuracy[ht]:.2f}, drop {drop[ht]:.1f}"
    holds = accuracy[ht] == min(accuracy.values()) and drop[ht] == max(drop.values())
    yield "Clipper-HT has the lowest accuracy and the largest drop, 20 points (Fig. 4)", finding, verdict(holds)
    claim = "Proteus' drop is smallest: INFaaS' is 2.8 times, Sommelier's 3.2 times as large (Section 6.2)"
    yield claim, *_times(drop, {"infaas-accuracy": 2.8, "sommelier": 3.2})
    claim = "Proteus violates least: Sommelier 2.8, INFaaS 4.3, Clipper more than 10 times as often (Section 6.2)"
    yield claim, *_times(violated, {"sommelier": 2.8, "infaas-accuracy": 4.3, ha: 10, ht: 10})
    more = (throughput(found["proteus"]) or 0.0) / max(throughput(found[ha]) or 0.0, 1e-9) - 1
    finding = f"{more:.0%} more queries in time"
    yield "Proteus answers 60% more than Clipper-HA (Fig. 4)", finding, verdict(more >= 0.6)


def _times(figures: Mapping[str, float], paper: Mapping[str, float]) -> tuple[str, str]:
    """Return ratios of others' figures to Proteus', and a verdict on the paper's ones."""
    found = {name: figures[name] / max(figures["proteus"], 1e-9) for name in paper}
    finding = ", ".join(f"{times:.1f} (`{name}`)" for name, times in found.items())
    return finding, verdict(all(found[name] >= times for name, times in paper.items()))
