"""Batching in isolation: one allocation, several batch policies, arrivals of growing unevenness (Fig. 6)."""

from __future__ import annotations

from ..page import Context
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
        *parts,
    )
