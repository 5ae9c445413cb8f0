"""Three boxes, twelve applications: devices that must be shared.

There are fewer devices than applications.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..page import Context, number, percent
from ..runs import Outcome
from ..worlds import heterogeneous as world
from .common import STACKS, Claim, claimed, cut_short, joined, of, quantities, verdict

NAME = "heterogeneous"
TITLE = "Three boxes, twelve applications"


def _cases(context: Context) -> dict:
    return of(world(context.quick), STACKS)


def cases(context: Context) -> list:
    return list(_cases(context).values())


def body(context: Context) -> str:
    scenario = world(context.quick).scenario()
    outcomes = context.outcomes(_cases(context))
    slos = ", ".join(f"{name} {1000 * slo:g} ms" for name, slo in scenario.slo_s.items())
    parts = [
        context.left_out(cases(context)),
        "A CPU server, a box with an old GPU and one with a new GPU serve twelve applications with SLOs of their own "
        f"({slos}). No plan that gives each device one variant, as Proteus' Eq. 1 and all published "
        "baselines do, can serve them all: `proteus` leaves applications out, `nereus` shares devices. "
        "Everything is in `benchmarks/evaluation/heterogeneous/`: profiles that were made up for it (see its README), "
        "Poisson arrivals with a Zipf split, two bursts, loads of 0.2 s, 1 ms of network, 5% noise, 2 s at most for a "
        "solve. It runs with `manage.py simulate benchmarks/evaluation/heterogeneous/scenario.toml`.",
    ]
    if not outcomes:
        return joined(*parts, "No results.")
    reference = next(iter(outcomes.values())).summary
    return joined(
        *parts,
        quantities(outcomes),
        f"Fluid references: {number(reference['fluid_reference_accuracy'])} with batches within half the SLO "
        f"(serving {percent(reference['fluid_reference_served'])}), "
        f"{number(reference['fluid_reference_slo_accuracy'])} within the SLO "
        f"(serving {percent(reference['fluid_reference_slo_served'])}).",
        cut_short(outcomes),
        claimed(_claims(outcomes), "the papers"),
    )


def _claims(outcomes: Mapping[str, Outcome]) -> Iterator[Claim]:
    """Claims of the papers on such a world beside these figures."""
    if "proteus" in outcomes:
        by_application = outcomes["proteus"].summary["per_application"]
        left = [name for name, figures in by_application.items() if figures["violation_ratio"] == 1]
        finding = f"`proteus` serves {len(by_application) - len(left)} of {len(by_application)} applications"
        reason = "not comparable: Eq. 1 gives each device one variant, and here are more applications than devices"
        claim = "Proteus meets all demand by lowering accuracy, on a heterogeneous cluster (Sections 4 and 6.2)"
        yield claim, finding, reason if left else verdict(True)
    shared, alone = outcomes.get("nereus"), outcomes.get("infaas-accuracy")
    if shared is not None and alone is not None:
        ratios = [one.summary["violation_ratio"] for one in (shared, alone)]
        finding = f"{percent(ratios[0], 2)} violated where devices are shared, {percent(ratios[1], 2)} where not"
        claim = "Models that share accelerators are served where one model a GPU falls short (INFaaS, Section 6.3.1)"
        yield claim, finding, verdict(ratios[0] < ratios[1])
