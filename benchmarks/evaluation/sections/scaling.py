"""How long solves take: Fig. 10. benchmarks/solver.py measures them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import solver

from .. import published
from .common import measured

NAME = "scaling"
TITLE = "Solver scaling"


def cases(context) -> list:
    return []


def body(context) -> str:
    return measured(solver, context.quick, misses)


def misses(rows: Sequence[solver.Row]) -> list[str]:
    """Targets for `nereus` that these rows miss, by the gap asked for: gaps that were not certified, and corners
    that took too long."""
    found = []
    ours = [row for row in rows if row.strategy == "nereus"]
    for asked in dict.fromkeys(row.asked for row in ours):
        mine = [row for row in ours if row.asked == asked]
        open_ = [row for row in mine if not row.reached]
        if open_:
            widest = max(row.gap for row in open_)
            found.append(f"{asked:.1%} is not certified in {len(open_)} of {len(mine)} worlds (at worst {widest:.3%})")
        for row in mine:
            limit_s = published.SOLVE_S.get((row.devices, row.variants, row.applications))
            slowest_s = max(row.first_s, row.again_s)
            if row.grows == "corner" and asked == published.SOLVE_GAP and limit_s is not None and slowest_s > limit_s:
                found.append(f"{asked:.1%} took {slowest_s:.3f} s with {row.devices:,} devices, asked {limit_s:g} s")
    return found
