"""Small problems for promises."""

from __future__ import annotations

from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile, Problem
from scheduler.promises.recorded import Recorded
from scheduler.promises.windows import World
from scheduler.stacks import strategies

KIND, OTHER = "cpu-a", "cpu-b"


def profile(ms_per_row: float) -> LatencyProfile:
    return LatencyProfile(tuple((batch, batch * ms_per_row / 1000) for batch in (1, 2, 4, 8)), memory_bytes=2**20)


def problem(demand: float = 20.0, slo_s: float = 0.3) -> Problem:
    return Problem(
        devices=tuple(DeviceResources(f"{node}/cpu{n}", KIND, 2**30) for node in ("left", "right") for n in (0, 1)),
        applications=(ApplicationDemand("digits", slo_s, demand), ApplicationDemand("words", slo_s, 5.0)),
        variants=(
            CandidateVariant("1", "digits", 90.0, {KIND: profile(4), OTHER: profile(2)}, name="quick"),
            CandidateVariant("2", "digits", 100.0, {KIND: profile(30)}, name="good"),
            CandidateVariant("3", "words", 100.0, {KIND: profile(10)}, name="only"),
        ),
    )


def world(demand: float = 20.0, arriving: float | None = None, stack: str = "nereus") -> World:
    """A plan for ``demand``, and recorded arrivals of ``arriving`` queries/s (None: as many)."""
    made = problem(demand)
    came = demand if arriving is None else arriving
    recorded = Recorded({"digits": (came,) * 30, "words": (5.0,) * 30}, {})
    return World(stack, made, strategies.get(stack)(made), recorded)
