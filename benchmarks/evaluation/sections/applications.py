"""Application by application: Fig. 9."""

from __future__ import annotations

from ..page import Context, number, percent, table
from ..worlds import published as world
from .common import joined, of

NAME = "applications"
TITLE = "By application"
TRACE = "medium-normal_load"


def _cases(context: Context) -> dict:
    return of(world(context.data, TRACE, context.quick))


def cases(context: Context) -> list:
    return list(_cases(context).values())


def body(context: Context) -> str:
    outcomes = context.outcomes(_cases(context))
    left_out = context.left_out(cases(context))
    if not outcomes:
        return joined(left_out, "No results.")
    figures = {label: outcome.summary["per_application"] for label, outcome in outcomes.items()}
    names = list(next(iter(figures.values())))
    parts = [left_out, f"`{TRACE}`."]
    for title, key, shown in (
        ("SLO violations", "violation_ratio", lambda value: percent(value, 2)),
        ("Effective accuracy", "effective_accuracy", lambda value: number(value, 2)),
    ):
        rows = [(f"`{label}`", *(shown(f[name][key]) for name in names)) for label, f in figures.items()]
        parts += [f"### {title}", table(("stack", *names), rows)]
    return joined(*parts)
