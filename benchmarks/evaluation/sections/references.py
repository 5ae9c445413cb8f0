"""The fluid references of the five traces.

It says why one of them differs from the quoted one.
"""

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
#: the trace whose quoted reference is another one, and a margin on demand that gives the quoted figure there
DOUBTFUL, MARGIN = "zipf_exponential_bursty", 1.15


def cases(context: Context) -> list:
    return []


def body(context: Context) -> str:
    scenarios = {trace: world(context.data, trace, context.quick).scenario() for trace in published.TRACES}
    rows = []
    for trace, scenario in scenarios.items():
        half, whole = fluid_reference(scenario), fluid_reference(scenario, 1.0)
        more, quoted = fluid_reference(scenario, demand_factor=MARGIN), published.REFERENCES[trace]
        figures = [number(half.accuracy), percent(half.served), number(quoted, 2), number(more.accuracy)]
        figures += [number(whole.accuracy), percent(whole.served), number(published.REFERENCE_SLO, 2)]
        rows.append((trace, f"{len(scenario.arrivals):,}", *figures))
    half_margin = f"half the SLO, {MARGIN:g} x demand"
    head = ("trace", "queries", "half the SLO", "served", "quoted", half_margin, "the SLO", "served", "quoted")
    return joined(
        "The best accuracy (normalised percent) that any plan can have if demand is known in each window of "
        f"{WINDOW_S:g} s, flows evenly, and devices can be divided at will. With batches within half the SLO this is "
        "what plans under Proteus' rule can reach; with batches within the SLO itself it is what nobody can pass who "
        "serves as much. *Served*: the share of the demand that the reference serves, the most that can be, before it "
        "looks at accuracy; who serves less may be more accurate.",
        table(head, rows),
        f"Perfect knowledge does not give the figure quoted for `{DOUBTFUL}`, {published.REFERENCES[DOUBTFUL]:.2f}; "
        f"neither how windows are cut nor how they weigh explains it. A margin on demand of about {MARGIN - 1:.0%} "
        "does, and it leaves the other four as they are quoted, for they have capacity to spare.",
    )
