"""Plans every 30 s, as Proteus' authors and the live default do, beside every 10 s, as all other sections."""

from __future__ import annotations

from ..page import Context, number, percent, table
from ..runs import Case
from ..worlds import every
from ..worlds import published as world
from .common import cut_short, joined

NAME = "period"
TITLE = "Plans every 30 s"
TRACES = ("medium-normal_load", "zipf_exponential_bursty")
STACKS = ("sommelier", "infaas-accuracy", "proteus", "nereus")
PERIOD_S, USUAL_S = 30.0, 10.0


def _cases(context: Context, trace: str) -> dict[str, Case]:
    """By stack and period."""
    worlds = {
        USUAL_S: world(context.data, trace, context.quick),
        PERIOD_S: every(context.data, trace, PERIOD_S, context.quick),
    }
    return {f"{name}, {period_s:g} s": Case(one, name) for name in STACKS for period_s, one in worlds.items()}


def cases(context: Context) -> list:
    return [case for trace in TRACES for case in _cases(context, trace).values()]


def body(context: Context) -> str:
    parts = []
    for trace in TRACES:
        outcomes = context.outcomes(_cases(context, trace))
        rows = [
            (
                f"`{label}`", percent(o.summary["violation_ratio"]), number(o.summary["effective_accuracy"]),
                number(o.summary["max_accuracy_drop_10s"], 2), f"{o.summary['loads']:,}", f"{o.summary['solves']:,}",
            )
            for label, o in outcomes.items()
        ]  # fmt: skip
        head = ("stack, period", "violations", "effective accuracy", "max drop, 10 s", "loads", "solves")
        parts += [f"### {trace}", table(head, rows) if rows else "No results.", cut_short(outcomes)]
    return joined(
        context.left_out(cases(context)),
        f"Proteus' paper (Section 6.1.5) and the live default plan every {PERIOD_S:g} s; its published simulator, "
        f"and so all other sections, every {USUAL_S:g} s. Bursts ask for plans between these in both.",
        *parts,
    )
