"""The fluid references of the five traces."""

from __future__ import annotations

from scheduler.simulation.fluid import WINDOW_S, fluid_reference

from .. import published
from ..page import Context, number, percent, table
from ..worlds import published as world
from .common import joined

NAME = "references"
TITLE = "Fluid references"
#: its figures are made from this and from what it imports
SOURCE = "scheduler/simulation/fluid.py"


def cases(context: Context) -> list:
    return []


def body(context: Context) -> str:
    scenarios = {trace: world(context.data, trace, context.quick).scenario() for trace in published.TRACES}
    rows = []
    for trace, scenario in scenarios.items():
        half, whole = fluid_reference(scenario), fluid_reference(scenario, 1.0)
        figures = (number(one.accuracy) + f" ({percent(one.served)})" for one in (half, whole))
        rows.append((trace, f"{len(scenario.arrivals):,}", *figures))
    return joined(
        "The best accuracy of any plan if demand is known in each window of "
        f"{WINDOW_S:g} s, flows evenly, and devices can be divided at will; in parentheses the share of the demand "
        "that it serves. Proteus' rule needs batches within half the SLO; nobody who serves as much can pass the last "
        "column.",
        table(("trace", "queries", "batches within half the SLO", "batches within the SLO"), rows),
    )
