"""Runs with their gateways and executors, ready to go."""

from __future__ import annotations

from . import early, late
from .run import EARLY, Run, World


def run(world: World, gateways: int, load: float, stack: str, seconds: float, seed: int, uneven: float = 1.0) -> Run:
    """``gateways`` share ``load`` (of the capacity) for so many seconds, the first of them ``uneven`` times as much as
    each other."""
    made = Run(world, stack, seed)
    rate = load * world.capacity()
    names = range(world.devices)
    if stack == EARLY:
        made.executors += [early.Executor(made, name, rate / world.devices) for name in names]
        made.gateways += [early.Gateway(made) for _ in range(gateways)]
    else:
        menu = world.menu()
        made.executors += [late.Executor(made, name) for name in names]
        made.gateways += [late.Gateway(made, menu) for _ in range(gateways)]
    made.load(rate, seconds, uneven, seed)
    return made
