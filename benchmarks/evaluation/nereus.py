"""Sections on the default stack: small worlds, and without one part at a time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks import worlds
from benchmarks.figures import table
from scheduler.simulation.ablations import PARTS

from .page import Context, Results, Section

#: worlds in which parts are judged
JUDGES = ("30+5, mix, 900/s", "20 GPUs, overload", "loads of 2 s, medium-normal_load")


def _worlds(context: Context, _results: Results) -> Iterator[str]:
    yield worlds.render(worlds.measure(worlds.names(), worlds.SEEDS, None, context.runner.processes), {})


def _parts(context: Context, _results: Results) -> Iterator[str]:
    rows = []
    for part in (None, *PARTS):
        figures = worlds.measure(JUDGES, worlds.SEEDS, part, context.runner.processes)
        rows.append((f"without {part}" if part else "nereus", *map(_cell, figures.values())))
    yield table(("", *JUDGES), rows)


def _cell(runs: list[worlds.Figures]) -> str:
    violations, accuracy = (
        statistics.mean(one) for one in zip(*((run.violations, run.accuracy) for run in runs), strict=True)
    )
    return f"{violations:.3f}% / {accuracy:.2f}"


SECTIONS = (
    Section(
        "worlds", "`nereus` in small worlds",
        "`python -m benchmarks worlds`: overload, few devices, unlike SLOs (100 to 600 ms by application), and where "
        "profiles or run times are not what plans assume: *wrong profiles* are off by a factor from "
        f"{1 - worlds.ERROR:g} to {1 + worlds.ERROR:g} that nobody tells the planner; of *stalls* one batch in "
        f"{worlds.STALL_EVERY}, by chance, takes {worlds.STALL_MS} ms more, longer than the SLO. Plans: violations "
        "are the part of the demand that the plan leaves out, at a share of what divisible devices could serve.",
        more=_worlds,
    ),
    Section(
        "nereus-parts", "Parts of nereus",
        "One part taken away at a time (`scheduler/simulation/ablations.py`), in three of these worlds, means of three "
        "seeds; `python -m benchmarks worlds --without PART` shows a part in all of them.",
        more=_parts,
    ),
)  # fmt: skip
