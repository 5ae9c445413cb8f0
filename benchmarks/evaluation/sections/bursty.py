"""The bursty trace over time: Fig. 5."""

from __future__ import annotations

from scheduler.simulation import plots

from ..page import Context
from ..worlds import published as world
from .common import joined, of

NAME = "bursty"
TITLE = "Bursts over time"
TRACE = "zipf_exponential_bursty"


def cases(context: Context) -> list:
    return list(_cases(context).values())


def _cases(context: Context) -> dict:
    return of(world(context.data, TRACE, context.quick))


def body(context: Context) -> str:
    outcomes = context.outcomes(_cases(context))
    left_out = context.left_out(cases(context))
    if not outcomes:
        return joined(left_out, "No results.")
    seconds = {label: outcome.seconds for label, outcome in outcomes.items()}
    drawn = (
        ("accuracy", plots.effective_accuracy(seconds), "Effective accuracy"),
        ("violations", plots.violations(seconds), "Queries late or dropped"),
    )
    return joined(
        left_out,
        f"`{TRACE}`, by the second of arrival.",
        *(context.image(f"bursty-{name}.png", figure, f"{text}, over time by stack") for name, figure, text in drawn),
    )
