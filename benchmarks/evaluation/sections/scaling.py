"""How long solves take: Fig. 10. What measures is benchmarks/solver.py."""

from __future__ import annotations

from .measured import rendered

NAME = "scaling"
TITLE = "Solver scaling"


def cases(context) -> list:
    return []


def body(context) -> str:
    return rendered("benchmarks.solver", context.quick, "solve times were not measured")
