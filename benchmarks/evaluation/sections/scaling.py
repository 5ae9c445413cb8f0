"""Times of solves: Fig. 10. benchmarks/solver.py measures them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from benchmarks import solver

from .. import published
from .common import Claim, claimed, joined, measured, verdict

NAME = "scaling"
TITLE = "Solver scaling"
#: its figures are made from this and from what it imports
SOURCE = "scheduler/allocation/strategies.py"
#: worlds of the table; the CSV file has all
SHOWN = ("corner", "devices")
#: seconds that Proteus' authors allow, their largest world (devices, variants, applications), and their mean
LIMIT_S, LARGEST, MEAN_S = 60.0, (160, 450, 17), 4.2


def cases(context) -> list:
    return []


def body(context) -> str:
    rows = solver.measure(context.quick)
    link = context.rows(NAME, [asdict(row) for row in rows])
    chosen = [row for row in rows if row.asked == published.SOLVE_GAP and not row.limits and row.grows in SHOWN]
    return joined(
        measured(solver, chosen, solver.render, claimed(_claims(rows), "Proteus")), f"All worlds and gaps: {link}."
    )


def _claims(rows: Sequence[solver.Row]) -> Iterator[Claim]:
    """Section 6.8 of Proteus beside its MILP's times to a certified 0.5%."""
    corners = {
        (row.devices, row.variants, row.applications): row
        for row in rows
        if row.strategy == "proteus" and row.grows == "corner" and row.asked == published.SOLVE_GAP
    }
    if (usual := corners.get(solver.USUAL)) is not None:
        claim = f"A solve takes {MEAN_S} s on the mean (Section 6.8; its world)"
        yield claim, f"{usual.first_s:.2f} s to {usual.gap:.2%}", verdict(usual.first_s <= MEAN_S)
    if (large := corners.get(LARGEST)) is not None:
        finding = f"{large.first_s:.2f} s to {large.gap:.2%} for all three at once"
        claim = f"160 devices, 450 variants or 17 applications within {LIMIT_S:g} s (Fig. 10)"
        yield claim, finding, verdict(large.reached and large.first_s <= LIMIT_S)
