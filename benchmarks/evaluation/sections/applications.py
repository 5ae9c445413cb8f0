"""Application by application: Fig. 9."""

from __future__ import annotations

import math

from scheduler.simulation.plots import colour, figure

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
    made = figure(9.0, 4.6)
    width = 0.8 / len(figures)
    for axes, key, factor, what in zip(
        made.subplots(2, 1, sharex=True),
        ("violation_ratio", "effective_accuracy"),
        (100, 1),
        ("SLO violations, %", "effective accuracy, %"),
        strict=True,
    ):
        drawn = []
        for i, (label, f) in enumerate(figures.items()):
            values = [math.nan if f[name][key] is None else factor * f[name][key] for name in names]
            drawn += [value for value in values if not math.isnan(value)]
            axes.bar(
                [n + (i + 0.5) * width - 0.4 for n in range(len(names))], values, width, color=colour(i), label=label
            )
        if key == "effective_accuracy" and drawn:
            axes.set_ylim(max(0, min(drawn) - 1), 100.2)
        axes.set_ylabel(what, fontsize=8)
        axes.tick_params(labelsize=8)
    axes.set_xticks(range(len(names)), names)
    made.axes[0].legend(fontsize=7, frameon=False, ncols=3)
    parts.append(context.image("applications.png", made, "Violations and accuracy by application and stack"))
    return joined(*parts)
