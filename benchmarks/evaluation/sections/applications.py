"""Application by application: Fig. 9."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..page import Context, number, percent, table
from ..worlds import published as world
from .common import Claim, claimed, joined, of, verdict

NAME = "applications"
TITLE = "By application"
TRACE = "medium-normal_load"
OURS = "proteus"


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
    rows = [
        (
            name,
            *(
                f"{percent(f[name]['violation_ratio'], 2)} / {number(f[name]['effective_accuracy'], 2)}"
                for f in figures.values()
            ),
        )
        for name in next(iter(figures.values()))
    ]
    return joined(
        left_out,
        f"`{TRACE}`. Violations / effective accuracy:",
        table(("application", *(f"`{label}`" for label in figures)), rows),
        claimed(_claims(figures.get(OURS, {})), "Proteus"),
    )


def _claims(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[Claim]:
    """Yield the claims of Proteus' Section 6.7 beside the figures by application.

    Yields nothing where the paper's extremes (T5 and GPT-2) are missing.
    """
    if not {"t5", "gpt2"} <= figures.keys():
        return
    # The series over time are not kept: how far the lowest window is below the mean tells how much it varies.
    accuracy, drop = "effective_accuracy", "max_accuracy_drop_10s"
    varies = {name: round((f[accuracy] or 0.0) + (f[drop] or 0.0) - 100, 2) for name, f in figures.items()}
    most, least = max(varies, key=varies.__getitem__), min(varies, key=varies.__getitem__)
    reason = "" if most == "t5" else f": no application's accuracy varies by more than {varies[most]:.2f} points here"
    finding = f"`{most}` {varies[most]:.2f} points from the mean to the lowest 10 s, `t5` {varies['t5']:.2f}"
    yield "T5's accuracy varies most over time (Section 6.7, Fig. 9)", finding, verdict(most == "t5") + reason
    finding = f"`gpt2` {varies['gpt2']:.2f} points, the least {varies[least]:.2f}"
    yield "GPT-2's accuracy varies least (Section 6.7, Fig. 9)", finding, verdict(varies["gpt2"] == varies[least])
    violated = {name: f["violation_ratio"] for name, f in figures.items()}
    low, high = min(violated, key=violated.__getitem__), max(violated, key=violated.__getitem__)
    finding = f"from {percent(violated[low], 2)} (`{low}`) to {percent(violated[high], 2)} (`{high}`)"
    claim = "Violations are relatively consistent across families (Section 6.7, Fig. 9)"
    yield claim, finding, verdict(violated[high] <= 2 * violated[low])
