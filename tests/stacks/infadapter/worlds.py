"""Small problems for InfAdapter's stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.allocation.problem import (
    ApplicationDemand,
    CandidateVariant,
    CostWeights,
    DeviceResources,
    LatencyProfile,
    Problem,
)

#: by variant: accuracy, items/s of a core, seconds to load
VARIANTS = {"fast": (70.0, 25.0, 0.4), "middle": (76.0, 10.0, 1.0), "best": (78.0, 4.0, 3.0)}


def variant(
    name: str,
    application: str = "a",
    capacities: Sequence[tuple[int, float]] = (),
    numbers: tuple[float, float, float] | None = None,
    kinds: Mapping[str, float] | None = None,
) -> CandidateVariant:
    """``numbers``: accuracy, items/s of a core, seconds to load; ``kinds``: how much faster by device type."""
    accuracy, rate, load_s = numbers or VARIANTS[name]
    return CandidateVariant(
        f"{application}-{name}",
        application,
        accuracy,
        {
            kind: LatencyProfile(((1, 1 / (rate * factor)), (4, 3 / (rate * factor))), load_s=load_s)
            for kind, factor in (kinds or {"core": 1.0}).items()
        },
        capacities={"core": tuple(capacities)} if capacities else {},
    )


def problem(
    demands: Mapping[str, float],
    cores: int,
    budget: int | None = None,
    variants: Sequence[CandidateVariant] | None = None,
    costs: CostWeights | None = None,
    **changes,
) -> Problem:
    made = variants or [variant(name, application) for application in demands for name in VARIANTS]
    return Problem(
        tuple(DeviceResources(f"c{i}", "core") for i in range(cores)),
        tuple(ApplicationDemand(name, 1.0, demand) for name, demand in demands.items()),
        tuple(made),
        costs=costs or CostWeights(budget=budget),
        **changes,
    )
