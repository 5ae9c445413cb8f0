"""Live against simulated: the same scenario served by real devices. What measures is benchmarks/fidelity.py."""

from __future__ import annotations

from benchmarks import fidelity

from .common import measured

NAME = "fidelity"
TITLE = "Live against simulated"


def cases(context) -> list:
    return []


def body(context) -> str:
    return measured(fidelity, context.quick)
