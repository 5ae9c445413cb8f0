"""The same world with what its published form leaves out.

Loads and network take time, few variants are resident, and run times have noise.
"""

from __future__ import annotations

from .. import published
from ..page import Context
from ..worlds import REALISTIC, World
from ..worlds import realistic as world
from .common import compared, cut_short, joined, of

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
    found = {
        f"{trace}, {residents} resident{'s' if residents > 1 else ''} a device": context.outcomes(of(realistic, STACKS))
        for (trace, residents), realistic in _worlds(context).items()
    }
    return joined(
        context.left_out(cases(context)),
        f"A load occupies its device for {REALISTIC['load_time_s']:g} s, initial loads included; the network takes "
        f"{REALISTIC['network_ms']:g} ms each way; batch times vary by {REALISTIC['profile_noise']:.0%} around their "
        "profile. Most violations fall into the first seconds, while everything loads. Violations / effective "
        "accuracy:",
        compared("trace", found),
        cut_short({f"{name}, {row}": o for row, some in found.items() for name, o in some.items()}),
    )
