"""The bursty trace over time: Fig. 5."""

from __future__ import annotations

from scheduler.simulation import plots

from ..page import Context
from ..runs import Outcome
from ..worlds import published as world
from .common import joined, of

NAME = "bursty"
TITLE = "Bursts over time"
TRACE = "zipf_exponential_bursty"
#: stacks with more than this effective accuracy are drawn by themselves too, or they could not be told apart
CLOSE = 98.0


def cases(context: Context) -> list:
    return list(_cases(context).values())


def _cases(context: Context) -> dict:
    return of(world(context.data, TRACE, context.quick))


def _accurate(outcome: Outcome) -> bool:
    accuracy = outcome.summary["effective_accuracy"]
    return accuracy is not None and accuracy > CLOSE


def body(context: Context) -> str:
    outcomes = context.outcomes(_cases(context))
    left_out = context.left_out(cases(context))
    if not outcomes:
        return joined(left_out, "No results.")
    seconds = {label: outcome.seconds for label, outcome in outcomes.items()}
    close = {label: seconds[label] for label, outcome in outcomes.items() if _accurate(outcome)}
    drawn = (
        ("demand", plots.demand_and_throughput(seconds), "Demand, and queries answered in time"),
        ("accuracy", plots.effective_accuracy(seconds), "Effective accuracy"),
        ("accuracy-close", plots.effective_accuracy(close), f"Effective accuracy of those above {CLOSE:g}%"),
        ("violations", plots.violations(seconds), "Queries late or dropped"),
    )
    return joined(
        left_out,
        f"`{TRACE}`, by the second of arrival.",
        *(context.image(f"bursty-{name}.png", figure, f"{text}, over time by stack") for name, figure, text in drawn),
    )
