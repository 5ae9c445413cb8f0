"""Batching in isolation: one allocation, several batch policies, arrivals of growing unevenness (Fig. 6)."""

from __future__ import annotations

from ..page import Context, percent
from ..runs import Case
from ..worlds import World, poisson_like
from ..worlds import published as world
from .common import cut_short, joined, quantities

NAME = "batching"
TITLE = "Batching in isolation"
POLICIES = ("clipper", "nexus", "proteus", "nereus")
UNIFORM, GAMMA = "zipf_flat_uniform", "zipf_gamma"


def _worlds(context: Context) -> dict[str, World]:
    return {
        "uniform": world(context.data, UNIFORM, context.quick),
        "Poisson": poisson_like(context.data, UNIFORM, context.quick),
        "Gamma, shape 0.05": world(context.data, GAMMA, context.quick),
    }


def _cases(world: World) -> dict[str, Case]:
    return {policy: Case(world, "proteus", policy, "shares") for policy in POLICIES}


def cases(context: Context) -> list:
    return [case for world in _worlds(context).values() for case in _cases(world).values()]


def body(context: Context) -> str:
    parts = []
    for kind, arrivals in _worlds(context).items():
        outcomes = context.outcomes(_cases(arrivals))
        parts += [f"### {kind} arrivals", quantities(outcomes) if outcomes else "No results.", cut_short(outcomes)]
    return joined(
        context.left_out(cases(context)),
        f"`proteus` allocates and the plan's shares route, so that nothing but the batch policy differs. Uniform "
        f"arrivals are the trace `{UNIFORM}`, Poisson arrivals have its rates, Gamma arrivals are `{GAMMA}`.",
        _beside_the_paper(context),
        *parts,
    )


def _beside_the_paper(context: Context) -> str:
    """Fig. 6 of Proteus, and how these figures differ from it."""
    found = {}
    for kind, arrivals in _worlds(context).items():
        ratios = {name: o.summary["violation_ratio"] for name, o in context.outcomes(_cases(arrivals)).items()}
        if {"clipper", "nexus", "proteus"} <= ratios.keys():
            found[kind] = ratios
    if len(found) < 3:
        return ""
    poisson, gamma = found["Poisson"], found["Gamma, shape 0.05"]
    times = " and ".join(f"{gamma[name] / gamma['proteus']:.2f}" for name in ("clipper", "nexus"))
    return (
        "**This differs from the paper**, whose Fig. 6 has Clipper and Nexus at 2 to 4 times the violations of "
        "Proteus on "
        f"Poisson and Gamma arrivals. Here none violates more than {percent(max(poisson.values()))} on Poisson "
        "arrivals: the "
        "plan has capacity to spare for each application, so that batches are short whenever they start. On Gamma "
        f"arrivals Clipper and Nexus violate {times} times as often as Proteus: the order is the paper's, its "
        "distance is "
        "not. There whole micro-bursts exceed what the devices of an application can answer within 300 ms, whichever "
        "policy forms the batches. The paper does not name its load beside the capacity, on which this depends."
    )
