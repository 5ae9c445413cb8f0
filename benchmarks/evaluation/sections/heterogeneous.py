"""Three boxes, twelve applications: fewer devices than applications, so that they must be shared."""

from __future__ import annotations

from ..page import Context, number, percent, table
from ..worlds import heterogeneous as world
from .common import STACKS, cut_short, joined, of, quantities

NAME = "heterogeneous"
TITLE = "Three boxes, twelve applications"
WITH_SHARING = (*STACKS[:-1], "proteus-sharing", STACKS[-1])


def _cases(context: Context) -> dict:
    return of(world(context.quick), WITH_SHARING)


def cases(context: Context) -> list:
    return list(_cases(context).values())


def body(context: Context) -> str:
    scenario = world(context.quick).scenario()
    outcomes = context.outcomes(_cases(context))
    asked = ", ".join(f"{name} {1000 * slo:g} ms" for name, slo in scenario.slo_s.items())
    parts = [
        context.left_out(cases(context)),
        "A CPU server, a box with an old GPU and one with a new GPU serve twelve applications with SLOs of their own "
        f"({asked}). No plan that gives each device one variant, as Proteus' Eq. 1 and all published "
        "baselines do, can serve them all: `proteus` leaves applications out. `proteus-sharing` is Proteus on "
        "devices that applications share where that serves more, which is no part of the paper. Everything is in "
        "`benchmarks/evaluation/heterogeneous/`: profiles that were made up for it (see its README), Poisson arrivals "
        "with a Zipf split, two bursts, loads of 0.2 s, 1 ms of network, 5% noise, 2 s at most for a solve. It "
        "runs with `manage.py simulate benchmarks/evaluation/heterogeneous/scenario.toml`.",
    ]
    if not outcomes:
        return joined(*parts, "No results.")
    rows = [
        (f"`{label}`", *(percent(f["violation_ratio"], 2) for f in outcome.summary["per_application"].values()))
        for label, outcome in outcomes.items()
    ]
    reference = next(iter(outcomes.values())).summary
    return joined(
        *parts,
        quantities(outcomes),
        f"Fluid references: {number(reference['fluid_reference_accuracy'])} with batches within half the SLO "
        f"(serving {percent(reference['fluid_reference_served'])}), "
        f"{number(reference['fluid_reference_slo_accuracy'])} within the SLO "
        f"(serving {percent(reference['fluid_reference_slo_served'])}).",
        cut_short(outcomes),
        "### Violations by application",
        table(("stack", *scenario.applications), rows),
    )
