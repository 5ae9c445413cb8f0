"""Sections on the default stack: harder worlds, and without one part at a time."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.simulation.ablations import PARTS
from workers.dispatch.stack import LATE_BINDING

from . import ramsis
from .page import Context, Found, Grid, Section, number, percent, table
from .proteus import MEDIUM
from .runs import Case, Outcome
from .worlds import ERROR, SLOS_MS, STALL_EVERY, STALL_MS, TRACES, heterogeneous, published, realistic

STACK = "nereus"
#: variants that a device may hold in the realistic world
RESIDENTS = 3
#: seconds in which everything is loaded
COLD_S = 10


def _worlds(context: Context) -> Grid:
    data = context.data
    loads = ramsis.worlds(data.parent / "ramsis", context.runner.folder / "ramsis")
    bursty = TRACES[2]
    worlds = {
        "RAMSIS, Twitter trace": loads[ramsis.TWITTER],
        **{f"RAMSIS, {load}/s": loads[str(load)] for load in reversed(ramsis.LOADS[-4:])},
        TRACES[4]: published(data, TRACES[4]),
        **{f"{trace}, {RESIDENTS} residents": realistic(data, trace, RESIDENTS) for trace in TRACES[:3]},
        "three boxes": heterogeneous(),
        f"{bursty}, unlike SLOs": published(data, bursty, name=f"{bursty}, unlike SLOs", slo_ms=SLOS_MS),
        "wrong profiles": published(data, MEDIUM, name="wrong profiles", profile_error=ERROR),
        "stalls": published(data, MEDIUM, name="stalls", stall_ms=STALL_MS, stall_every=STALL_EVERY),
    }
    return {name: {STACK: Case(world, STACK)} for name, world in worlds.items()}


def _bounds(_context: Context, found: Found) -> Iterator[str]:
    cold = f"in the first {COLD_S} s"
    head = ("world", "violations", cold, "bound", "effective accuracy", "fluid reference", "serves")
    yield table(head, [(name, *row(cells[STACK])) for name, cells in found.items() if cells])


def row(outcome: Outcome) -> tuple[str, ...]:
    summary, served = outcome.summary, outcome.summary["fluid_reference_slo_served"]
    late = sum(second.arrived - second.in_time for second in outcome.seconds if second.second < COLD_S)
    return (
        percent(outcome.violations),
        percent(late / max(1, summary["queries"])),
        # To the digits that are shown: the linear programs are as exact as their tolerances.
        percent(round(max(summary["cold_bound"], 1.0 - served), 5)),
        number(summary["effective_accuracy"]),
        number(summary["fluid_reference_slo_accuracy"]),
        percent(served, 2),
    )


def _parts(context: Context) -> Grid:
    world = realistic(context.data, MEDIUM, RESIDENTS)
    late = {f"without {part}": (STACK, "nereus", f"{LATE_BINDING}-wo-{part}") for part in PARTS}
    forms = {
        STACK: (STACK,),
        "with Proteus' allocation": ("proteus", "nereus", LATE_BINDING),
        "bound early, by shares": (STACK, "nexus", "shares"),
        "bound early, Proteus' batching": (STACK, "proteus", "least-completion"),
        **late,
    }
    return {label: {f"{MEDIUM}, {RESIDENTS} residents": Case(world, *names)} for label, names in forms.items()}


SECTIONS = (
    Section(
        "worlds", "`nereus` in worlds that it was not made for",
        "Near the capacity of the devices, and where profiles, devices or run times are not what plans assume. The "
        "loads and the Twitter trace are RAMSIS' world: its least accurate variant alone carries "
        f"{ramsis.CAPACITY:,}/s, and for 30 s of the trace more arrives than that. *Three boxes*: "
        "`benchmarks/evaluation/heterogeneous`, twelve applications and made-up profiles. *Unlike SLOs*: 100 to 600 ms "
        "by application. *Wrong profiles*: each variant takes on each device type its profile times a factor from "
        f"{1 - ERROR:g} to {1 + ERROR:g} that nobody tells the planner. *Stalls*: one batch in {STALL_EVERY}, by "
        f"chance, takes {STALL_MS} ms more, longer than the SLO.\n\n"
        f"*In the first {COLD_S} s*: the part of the violations that falls there, while everything is loaded and no "
        "demand is known, as a share of all queries. *Bound*: no rule could violate less, by arithmetic: queries that "
        "arrive more than their SLO before the first load of their application can have ended; or what the fluid "
        "reference does not serve, where that is more. *Fluid reference*: with batches within the SLO, and the share "
        "of the queries that it serves.",
        _worlds, more=_bounds, cell=None,
    ),
    Section(
        "nereus-parts", "Parts of nereus",
        "One part taken away at a time (`scheduler/simulation/ablations.py`; `python -m benchmarks worlds --without "
        "PART` shows a part in more worlds). *Bound early*: a query goes to a device's queue when it arrives.",
        _parts, corner="stack",
    ),
)  # fmt: skip
