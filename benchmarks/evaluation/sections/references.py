"""The fluid references of the five traces."""

from __future__ import annotations

from scheduler.simulation.fluid import fluid_reference

from .. import published
from ..page import Context, number, table
from ..worlds import published as world
from .common import joined

NAME = "references"
TITLE = "Fluid references"
#: a margin on demand that gives the figure quoted for the bursty trace, and leaves the others as they are quoted
MARGIN = 1.15


def cases(context: Context) -> list:
    return []


def body(context: Context) -> str:
    rows = []
    for trace in published.TRACES:
        scenario = world(context.data, trace, context.quick).scenario()
        rows.append(
            (
                trace,
                f"{len(scenario.arrivals):,}",
                number(fluid_reference(scenario)),
                number(published.REFERENCES[trace], 2),
                number(fluid_reference(scenario, demand_factor=MARGIN)),
                number(fluid_reference(scenario, 1.0)),
                number(published.REFERENCE_SLO, 2),
            )
        )
    return joined(
        "The best accuracy (normalised percent) that any plan can have if demand is known in each window of 5 s, flows "
        "evenly, and devices can be divided at will. With batches within half the SLO this is what plans under "
        "Proteus' rule can reach; with batches within the SLO itself it is what nobody can pass.",
        table(
            (
                "trace",
                "queries",
                "half the SLO",
                "quoted",
                f"half the SLO, {MARGIN:g} x demand",
                "the SLO",
                "quoted",
            ),
            rows,
        ),
        "The figure quoted for the bursty trace, 99.55, is not what perfect knowledge gives. No window of that trace "
        "asks for more than the devices can serve; leaving out the last window, which is not whole, or letting "
        "windows weigh the same, changes the third digit only; neither windows of 1 to 10 s, nor the largest batch "
        "instead of the fastest, nor rates rounded down give less than 99.57. A margin of 13 to 19% on demand (or as "
        "much less capacity) gives 99.55 there, and leaves the other four as quoted, because they have capacity to "
        "spare: the quoted figures were presumably made with such a margin.",
    )
