"""Live against simulated: the same scenario served by real devices. What measures is benchmarks/fidelity.py."""

from __future__ import annotations

from .measured import rendered

NAME = "fidelity"
TITLE = "Live against simulated"


def cases(context) -> list:
    return []


def body(context) -> str:
    return rendered("benchmarks.fidelity", context.quick, "live and simulated service were not compared")
