"""Live against simulated: the same scenario served by real devices.

benchmarks/fidelity.py measures it.
"""

from __future__ import annotations

from benchmarks import fidelity

from .common import measured

NAME = "fidelity"
TITLE = "Live against simulated"
#: measured live: all of the source counts
SOURCE = None


def cases(context) -> list:
    return []


def body(context) -> str:
    return measured(fidelity, fidelity.measure(context.quick), fidelity.render)
