"""`nereus` near capacity, and where profiles or devices misbehave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import published, ramsis, unlike
from ..page import Context, number, percent, table
from ..ramsis import TWITTER
from ..runs import Case, Outcome
from ..worlds import World, heterogeneous, realistic
from ..worlds import published as world
from .common import joined

NAME = "worlds"
TITLE = "`nereus` in worlds that it was not made for"
STACK = "nereus"
TRACE, RESIDENTS = "medium-normal_load", 3
#: wrong profiles, and stalls: one batch in this many takes so much longer
ERROR, STALL_MS, STALL_EVERY = 0.5, 500, 100
RIGHT, WRONG, STALLS, UNLIKE = "right profiles", "wrong profiles", "stalls", "unlike GPUs"
HALF = f"{UNLIKE}, {unlike.HALF_RATE:,.0f}/s"
#: SLOs in ms that differ by the application, and the trace on which they do
SLOS, SLOS_TRACE = "unlike SLOs", "zipf_exponential_bursty"
SLOS_MS = {"default": 300, "mobilenet": 100, "yolo": 200, "t5": 500, "gpt2": 600}
#: seconds in which everything is loaded
COLD_S = 10
#: worlds of the table, in its order
SHOWN = (
    TWITTER, "3600", "3400", "3200", "2000", "1200", "zipf_gamma", *published.TRACES[:3], "heterogeneous", UNLIKE, HALF,
    SLOS, WRONG, STALLS,
)  # fmt: skip


def _worlds(context: Context) -> dict[str, World]:
    data, quick, kept = context.data, context.quick, context.runner.folder
    loads = ramsis.worlds(data.parent / "ramsis", kept / "ramsis", quick)
    return {
        **{name: loads[name] for name in (TWITTER, *map(str, reversed(ramsis.LOADS)))},
        "zipf_gamma": world(data, "zipf_gamma", quick),
        **{trace: realistic(data, trace, RESIDENTS, quick) for trace in published.TRACES[:3]},
        "heterogeneous": heterogeneous(quick),
        UNLIKE: unlike.world(data, kept / "unlike", quick),
        HALF: unlike.world(data, kept / "unlike-half", quick, unlike.HALF_RATE),
        SLOS: world(data, SLOS_TRACE, quick, name=f"{SLOS_TRACE}, {SLOS}", slo_ms=SLOS_MS),
        RIGHT: world(data, TRACE, quick),
        WRONG: world(data, TRACE, quick, name=f"{TRACE}, wrong profiles", profile_error=ERROR),
        STALLS: world(data, TRACE, quick, name=f"{TRACE}, stalls", stall_ms=STALL_MS, stall_every=STALL_EVERY),
    }


def _cases(context: Context) -> dict[str, Case]:
    return {name: Case(one, STACK) for name, one in _worlds(context).items()}


def cases(context: Context) -> list:
    return list(_cases(context).values())


def body(context: Context) -> str:
    found = context.outcomes(_cases(context))
    rows = [_row(name, found[name]) for name in SHOWN if name in found]
    cold = f"in the first {COLD_S} s"
    head = ("world", "violations", cold, "bound", "effective accuracy", "fluid reference", "serves")
    return joined(
        context.left_out(cases(context)),
        "Near the capacity of the devices, and where profiles, devices or run times are not what plans assume; one set "
        "of defaults for all. The loads and the Twitter trace are [RAMSIS' world](#ramsis-world-constant-loads-and-a-"
        "twitter-trace): its least accurate variant alone carries "
        f"{ramsis.CAPACITY:,}/s, and for 30 s of the trace more arrives than that. The traces with {RESIDENTS} "
        f"residents are the realistic world's. *{UNLIKE}*: "
        f"{unlike.DEVICES} devices of each of {len(unlike.TYPES)} types, two to four residents, loads of "
        f"{unlike.LOAD_S:g} s, {unlike.RATE:,.0f}/s of nine applications (from {unlike.START:.0%} of it at the start, "
        f"within {unlike.RISE_S:g} s) and {unlike.FACTOR:g} times as much of `{unlike.BURSTING}` in "
        f"{len(unlike.BURSTS)} bursts; and the same with {unlike.HALF_RATE:,.0f}/s. "
        f"*{SLOS}*: `{SLOS_TRACE}` with "
        + ", ".join(f"{ms} ms for `{name}`" for name, ms in SLOS_MS.items() if name != "default")
        + f" and {SLOS_MS['default']} ms for the others. "
        f"*{WRONG}*: `{TRACE}`, where each variant takes on each device type its "
        f"profile times a factor from {1 - ERROR:g} to {1 + ERROR:g} that nobody tells the planner. *{STALLS}*: the "
        f"same trace, where one batch in {STALL_EVERY}, by chance, takes {STALL_MS} ms more, longer than the SLO. "
        f"The stalls by themselves cost the queries of these batches, {1 / STALL_EVERY:.1%}.",
        f"*{cold.capitalize()}*: the part of the violations that falls there, while everything is loaded and no demand "
        "is known, as a share of all queries. *Bound*: no rule could violate less, by arithmetic: queries that arrive "
        "more than their SLO before the first load of their application can have ended, with all devices loading from "
        "the first moment on and, where applications outnumber devices, in the best order; or what the fluid reference "
        "does not serve, where that is more. Later loads, batches, and that nobody knows the demand are not counted. "
        "*Fluid reference*: with batches within the SLO, and the share of the queries that it serves.",
        table(head, rows) if rows else "No results.",
    )


def _row(name: str, outcome: Outcome) -> tuple[str, ...]:
    s = outcome.summary
    return (
        _title(name),
        percent(s["violation_ratio"]),
        percent(_cold(outcome)),
        percent(_bound(s)),
        number(s["effective_accuracy"], 2),
        number(s["fluid_reference_slo_accuracy"], 2),
        percent(s["fluid_reference_slo_served"], 2),
    )


def _bound(summary: Mapping[str, Any]) -> float:
    """Return the least share of the queries that any rule violates, by arithmetic."""
    unserved = 1.0 - summary["fluid_reference_slo_served"]
    # To the digits that are shown: the linear programs are as exact as their tolerances.
    return round(max(summary["cold_bound"], unserved), 5)


def _cold(outcome: Outcome) -> float:
    """Violations of the first seconds, as a share of all queries."""
    late = sum(second.arrived - second.in_time for second in outcome.seconds if second.second < COLD_S)
    return late / max(1, outcome.summary["queries"])


def _title(name: str) -> str:
    if name in ramsis.PUBLISHED:
        return "RAMSIS, Twitter trace" if name == TWITTER else f"RAMSIS, {name}/s"
    return f"{name}, {RESIDENTS} residents" if name in published.TRACES[:3] else name
