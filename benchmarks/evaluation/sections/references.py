"""The fluid references of the five traces, and why one of them is not the quoted one."""

from __future__ import annotations

from scheduler.simulation.fluid import WINDOW_S, fluid_reference, windows
from scheduler.simulation.scenario import Scenario

from .. import published
from ..page import Context, number, percent, table
from ..worlds import published as world
from .common import joined

NAME = "references"
TITLE = "Fluid references"
#: the trace whose quoted reference is another one, and a margin on demand that gives the quoted figure there
DOUBTFUL, MARGIN = "zipf_exponential_bursty", 1.15
#: how much of a window's demand may stay unserved by rounding
ROUNDING = 1e-6


def cases(context: Context) -> list:
    return []


def body(context: Context) -> str:
    scenarios = {trace: world(context.data, trace, context.quick).scenario() for trace in published.TRACES}
    margin = f"{MARGIN:g} x demand"
    rows = [
        (
            trace,
            f"{len(scenario.arrivals):,}",
            number((half := fluid_reference(scenario)).accuracy),
            percent(half.served),
            number(published.REFERENCES[trace], 2),
            number(fluid_reference(scenario, demand_factor=MARGIN).accuracy),
            number((whole := fluid_reference(scenario, 1.0)).accuracy),
            percent(whole.served),
            number(published.REFERENCE_SLO, 2),
        )
        for trace, scenario in scenarios.items()
    ]
    return joined(
        "The best accuracy (normalised percent) that any plan can have if demand is known in each window of "
        f"{WINDOW_S:g} s, flows evenly, and devices can be divided at will. With batches within half the SLO this is "
        "what plans under Proteus' rule can reach; with batches within the SLO itself it is what nobody can pass who "
        "serves as much. *Served*: the share of the demand that the reference serves, the most that can be, before it "
        "looks at accuracy; who serves less may be more accurate.",
        table(
            (
                "trace",
                "queries",
                "half the SLO",
                "served",
                "quoted",
                f"half the SLO, {margin}",
                "the SLO",
                "served",
                "quoted",
            ),
            rows,
        ),
        f"Perfect knowledge does not give the figure quoted for `{DOUBTFUL}`, "
        f"{published.REFERENCES[DOUBTFUL]:.2f}. Where it may come from:",
        _doubt(scenarios[DOUBTFUL]),
        f"Neither how windows are cut nor how they weigh explains it; a margin on demand of about {MARGIN - 1:.0%} "
        "does, and it leaves the other four as they are quoted, for they have capacity to spare. Presumably the quoted "
        "figures were made with one.",
    )


def _doubt(scenario: Scenario) -> str:
    found = windows(scenario)
    over = sum(window.served < window.demand * (1 - ROUNDING) for window in found)

    def mean(some: list) -> float:
        return sum(window.accurate for window in some) / sum(window.served for window in some)

    rows = [
        (f"as above ({over} of {len(found)} windows ask for more than can be served)", number(mean(found))),
        ("without the last window, which is not whole", number(mean(found[:-1]))),
        ("all windows weigh the same", number(sum(w.accurate / w.served for w in found) / len(found))),
        *(
            (f"windows of {length:g} s", number(mean(windows(scenario, length_s=length))))
            for length in (1.0, 2.0, 10.0)
        ),
        *(
            (f"{factor:g} x demand", number(fluid_reference(scenario, demand_factor=factor).accuracy))
            for factor in (1.05, 1.1, MARGIN, 1.2)
        ),
    ]
    return table(("reference, half the SLO", "accuracy"), rows)
