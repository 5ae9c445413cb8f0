"""End to end on the five traces, all stacks: the quantities of Fig. 4."""

from __future__ import annotations

from .. import published
from ..page import Context, number, percent, table
from ..worlds import published as world
from .common import STACKS, cut_short, joined, of, quantities

NAME = "end-to-end"
TITLE = "End to end"


def cases(context: Context) -> list:
    return [case for trace in published.TRACES for case in _cases(context, trace).values()]


def _cases(context: Context, trace: str) -> dict:
    return of(world(context.data, trace, context.quick))


def body(context: Context) -> str:
    parts = [
        "Each stack is a strategy with its own batching and routing. Everything starts cold, on a plan for 10 "
        "queries/s an application; those that are placed once (`clipper-ht`, `clipper-ha`, `sommelier`) for the "
        "trace's "
        "mean rates, as Proteus' authors placed them. Below each table stands what the published simulator does on "
        "the same trace, counted as strictly (in brackets: as it prints it, where late means later than 1,000 ms).",
        _verdicts(context),
    ]
    for trace in published.TRACES:
        outcomes = context.outcomes(_cases(context, trace))
        parts += [
            f"### {trace}",
            quantities(outcomes) if outcomes else "No results.",
            _quoted(trace),
            cut_short(outcomes),
        ]
    return joined(context.left_out(cases(context)), *parts)


def _quoted(trace: str) -> str:
    quoted = published.PROTEUS[trace]
    others = ""
    if quoted.sommelier is not None:
        others = f" Its Sommelier: {percent(quoted.sommelier, 1)} violations; its INFaaS: {percent(quoted.infaas, 0)}."
    return (
        f"Published simulator, Proteus: {percent(quoted.violations, 1)} ({percent(quoted.printed, 1)}) violations, "
        f"accuracy {quoted.accuracy:.2f}, max drop {quoted.drop:.2f}.{others}"
    )


def _verdicts(context: Context) -> str:
    """The targets of ``nereus``, and its results."""
    rows = []
    for trace in published.TRACES:
        outcome = context.outcomes(_cases(context, trace)).get(STACKS[-1])
        if outcome is None:
            continue
        s, target = outcome.summary, published.TARGETS[trace]
        missed = published.misses(target, s)
        rows.append(
            (
                trace,
                f"{percent(s['violation_ratio'])} (asked {percent(target.violations, 2)})",
                f"{number(s['effective_accuracy'])} (asked {target.accuracy:.2f})",
                f"{number(s['max_accuracy_drop_10s'], 2)}"
                + ("" if target.drop is None else f" (asked {target.drop:.2f})"),
                f"{number(s['fluid_reference_accuracy'], 2)} / {number(s['fluid_reference_slo_accuracy'], 2)}",
                number(s["queries_per_cpu_s"], 0),
                "reached" if not missed else "**misses** " + "; ".join(missed),
            )
        )
    if not rows:
        return ""
    speed = f"simulated queries a CPU second (asked {published.SIMULATED_PER_S:,})"
    head = ("trace", "violations", "effective accuracy", "max drop, 10 s", "fluid references", speed, "verdict")
    note = " (the targets are for whole traces; this is a quick evaluation)" if context.quick else ""
    return joined(f"Targets of `nereus` and its results{note}:", table(head, rows))
