"""The same world with what its published form leaves out.

Loads and network take time, few variants are resident, and run times have noise.
"""

from __future__ import annotations

from .. import published
from ..page import Context, percent
from ..worlds import REALISTIC, World
from ..worlds import realistic as world
from .common import cut_short, joined, of, quantities

NAME = "realistic"
TITLE = "Realistic load times, residents, network and noise"
TRACES = published.TRACES[:3]
RESIDENTS = (3, 1)
STACKS = ("sommelier", "infaas-accuracy", "proteus", "nereus")


def _worlds(context: Context) -> dict[tuple[str, int], World]:
    return {
        (trace, residents): world(context.data, trace, residents, context.quick)
        for residents in RESIDENTS
        for trace in TRACES
    }


def cases(context: Context) -> list:
    return [case for world in _worlds(context).values() for case in of(world, STACKS).values()]


def body(context: Context) -> str:
    parts, verdicts = [], []
    for (trace, residents), realistic in _worlds(context).items():
        outcomes = context.outcomes(of(realistic, STACKS))
        parts += [
            f"### {trace}, at most {residents} resident variant{'s' if residents > 1 else ''} a device",
            quantities(outcomes) if outcomes else "No results.",
            cut_short(outcomes),
        ]
        if residents == RESIDENTS[0] and "nereus" in outcomes:
            ratio = outcomes["nereus"].summary["violation_ratio"]
            kept = ratio < published.REALISTIC_VIOLATIONS
            verdicts.append(f"{trace} {percent(ratio)} ({'reached' if kept else '**missed**'})")
    asked = f"asked: less than {percent(published.REALISTIC_VIOLATIONS, 1)} violations with {RESIDENTS[0]} residents"
    return joined(
        context.left_out(cases(context)),
        f"A load occupies its device for {REALISTIC['load_time_s']:g} s, initial loads included; the network takes "
        f"{REALISTIC['network_ms']:g} ms each way; batch times vary by {REALISTIC['profile_noise']:.0%} around their "
        "profile. Much of what is violated falls into the first seconds, when everything is being loaded.",
        f"`nereus` ({asked}): {'; '.join(verdicts)}." if verdicts else "",
        *parts,
    )
