"""The allocation problem and its answer: immutable data.

A strategy is a pure function ``Problem -> Allocation`` (see :mod:`scheduler.stacks.strategies`): no I/O, no clock,
no randomness of its own; identical problems give identical allocations. The simulator calls the same functions.

Rates are items/s, times seconds, sizes bytes. Accuracies are normalised percent (100: the application's best).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workers.dispatch.policy_tables import LoadPolicy

#: Relative gap within which a plan counts as proved by the MILP of `nereus`.
CERTIFIED = 5e-3


@dataclass(frozen=True)
class DeviceResources:
    """A device as strategies see it; None: not limited.

    Attributes:
        type: devices of one type have the same profiles.
        available: share of the device's time that queries may use: 1 less what is reserved, for profiling for example.
        loaded: variants that are loaded there now, which cost nothing to keep.
        cost: of a second of its time, relative to other devices, for strategies that save devices.
        cores: that it takes of its box.
    """

    id: str
    type: str
    memory_bytes: int | None = None
    available: float = 1.0
    loaded: frozenset[str] = frozenset()
    max_resident: int | None = None
    cost: float = 1.0
    cores: int = 1


@dataclass(frozen=True)
class CostWeights:
    """Costs of cores and loads beside accuracy, for the stacks that weigh them (InfAdapter, Eq. 1).

    Attributes:
        accuracy: of a point of mean accuracy (alpha).
        core: of a core in use (beta).
        load_s: of a second of an application's longest load (gamma).
        budget: cores that may be in use; None: all.
    """

    accuracy: float = 1.0
    core: float = 0.05
    load_s: float = 0.35
    budget: int | None = None


@dataclass(frozen=True)
class ApplicationDemand:
    """An application with its demand.

    Attributes:
        demand: items/s to plan for, margins included.
        weight: relative value of one served item.
        floor: share of the demand (0 to 1) that is served before anything beyond other applications' floors.
        expected: items/s of the forecast without its margin, for people; None: unknown.
    """

    id: str
    slo_s: float
    demand: float
    weight: float = 1.0
    floor: float = 0.0
    expected: float | None = None


@dataclass(frozen=True)
class LatencyProfile:
    """Latency of one variant on one device type, and its memory while resident.

    Attributes:
        points: (batch, seconds), ascending by batch; live, the 95th percentile.
        memory_bytes: of the resident variant; ``load_s``: seconds of a load.
        slowest: the same of the largest queries, where a batch's time depends on the size of its queries; ``points``
            are means then. Empty: it does not.
    """

    points: tuple[tuple[int, float], ...]
    memory_bytes: int = 0
    load_s: float = 0.0
    slowest: tuple[tuple[int, float], ...] = ()

    @property
    def longest(self) -> tuple[tuple[int, float], ...]:
        """The longest times of batches, by which their queries must be in time."""
        return self.slowest or self.points


@dataclass(frozen=True)
class CandidateVariant:
    """A variant that may be placed.

    Attributes:
        profiles: by device type; the variant does not run on types that are missing.
        name: for explanations, where the id means nothing to people.
        pinned: to be resident on at least one device, where it fits.
        capacities: by device type, (cores, items/s), ascending, of an instance on that many cores of such devices
            together; for a missing type, the sum of what its devices serve.
    """

    id: str
    application: str
    accuracy: float
    profiles: Mapping[str, LatencyProfile] = field(default_factory=dict)
    name: str = ""
    pinned: bool = False
    excluded: bool = False
    capacities: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name or self.id


@dataclass(frozen=True)
class Problem:
    """A strategy's whole input.

    Attributes:
        gap: relative gap to reach.
        milp_s: bounds each MILP of `nereus`, of which a plan takes up to three, in wall time; None: only their nodes
            and steps are limited, and the number of policies of stacks that have these, so that the same problem gets
            the same plan everywhere.
        previous: the allocation in force, where this same strategy made it; None: this is its first. Strategies have no
            other memory.
        at_s: a steady time in seconds, for strategies that wait.
        costs: for stacks that weigh cores and loads against accuracy.
    """

    devices: tuple[DeviceResources, ...]
    applications: tuple[ApplicationDemand, ...]
    variants: tuple[CandidateVariant, ...]
    time_limit_s: float = 10.0
    gap: float = 0.0
    milp_s: float | None = None
    previous: Allocation | None = None
    at_s: float = 0.0
    costs: CostWeights = CostWeights()


@dataclass(frozen=True)
class Placement:
    """A resident variant on a device; ``time_share``: part of the device's time that ``rate`` takes, 0 to 1."""

    device: str
    variant: str
    rate: float
    max_batch: int
    time_share: float


@dataclass(frozen=True)
class PlannedPolicies:
    application: str
    devices: tuple[str, ...]
    variants: tuple[str, ...]
    policies: tuple[LoadPolicy, ...]


@dataclass(frozen=True)
class Allocation:
    """A strategy's answer.

    Attributes:
        served, left_out: items/s by application, which add up to the demand.
        accuracy: mean of what is served.
        revisit_s: by shared device, the longest time between two slices of a resident.
        gap: certified relative gap between this allocation, as packed on devices, and the solver's bound.
        status: ``optimal`` (the problem's gap is certified, or the strategy's own where it asks for none), ``feasible``
            (it is not), ``heuristic`` (a rule without optimality; the bound is then that of all demand on the most
            accurate variants) or ``empty`` (nothing can be placed).
        method: ``milp``, ``search`` or empty. Of `nereus`: ``milp`` where the MILP over device counts decided (the plan
            is its own, by exchanges or by SCIP, or its bound certifies the plan), else ``search``. Of other strategies:
            ``milp`` where SCIP solved theirs, else empty.
        cut_short: the time limit ended a search, so that the same problem may get another answer elsewhere.
        solve_s, moves: set, as ``cut_short`` is, where strategies are called by name
            (:mod:`scheduler.stacks.strategies`).
        reasons: explanations for the operator: what each device got and why, what is left out and why.
        prices: of a second of a device's time, by device type (weighted items x normalised accuracy points; the duals
            of the relaxed problem); empty where the strategy has none.
        residents: all variants to keep loaded by device, in the order of loading, those placed there among them; empty
            where the strategy keeps no others.
        carried: the multiple of the demand that the devices could carry, as far as residents are chosen for it
            (:mod:`scheduler.allocation.standby`). None: it was not sought.
        ready_for: the same when the residents were chosen.
        refused: the rules that the strategy's own answer breaks, where this allocation replaces it
            (:mod:`scheduler.allocation.fallback`).
        policies: for stacks whose devices choose variants by them.
        surplus_since: by device, since when (``Problem.at_s``) its resident has not been needed, in strategies that
            wait before they remove it.
    """

    placements: tuple[Placement, ...]
    served: Mapping[str, float]
    left_out: Mapping[str, float]
    accuracy: float
    revisit_s: Mapping[str, float] = field(default_factory=dict)
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    solve_s: float = 0.0
    status: str = "optimal"
    method: str = ""
    cut_short: bool = False
    moves: int = 0
    reasons: tuple[str, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    residents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    carried: float | None = None
    ready_for: float = 0.0
    refused: str = ""
    policies: tuple[PlannedPolicies, ...] = ()
    surplus_since: Mapping[str, float] = field(default_factory=dict)


Strategy = Callable[[Problem], Allocation]
