"""The allocation problem and its answer: immutable data.

A strategy is a pure function ``Problem -> Allocation`` (see :mod:`scheduler.allocation.strategies`): no I/O, no clock,
no randomness of its own; identical problems give identical allocations. The simulator calls the same functions.

Rates are items/s, times seconds, sizes bytes. Accuracies are normalised percent (100: the application's best).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.dispatch.policy_tables import LoadPolicy

#: Relative gap within which a plan counts as proved by the MILP of `nereus`.
CERTIFIED = 5e-3


@dataclass(frozen=True)
class DeviceResources:
    """``available``: share of the device's time that queries may use (1 less what is reserved, for profiling say).
    ``loaded``: variants loaded there now, which cost nothing to keep. ``memory_bytes`` None: not limited. ``cost``: of
    a second of its time, relative to other devices, for strategies that save devices. ``cores``: that it takes of its
    box."""

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
    """``demand``: items/s to plan for (margins included). ``weight``: relative value of one served item. ``floor``:
    share of the demand (0 to 1) that is served before anything beyond other applications' floors is. ``expected``:
    items/s of the forecast without its margin, for people; None: not known."""

    id: str
    slo_s: float
    demand: float
    weight: float = 1.0
    floor: float = 0.0
    expected: float | None = None


@dataclass(frozen=True)
class LatencyProfile:
    """Latency (p95, live) by batch, ascending, of one variant on one device type, and its memory while resident.

    ``slowest``: where batches of one size take different times by the size of their queries, the longest ones, for the
    same batches; ``points`` are the mean then. Empty: they all take the same time."""

    points: tuple[tuple[int, float], ...]
    memory_bytes: int = 0
    load_s: float = 0.0
    slowest: tuple[tuple[int, float], ...] = ()

    @property
    def longest(self) -> tuple[tuple[int, float], ...]:
        """The longest time of a batch, which decides whether its queries are in time; rates follow from ``points``."""
        return self.slowest or self.points


@dataclass(frozen=True)
class CandidateVariant:
    """``profiles`` by device type; a missing type means that it does not run there. ``name``: for explanations, where
    the id means nothing to people. ``pinned``: to be resident on one device at least, wherever that is possible.
    ``excluded``: not to be placed. ``capacities`` by device type: (cores, items/s), ascending, of an instance on so
    many cores of such devices together; a missing type: what its devices serve one by one."""

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
    """A strategy's whole input. ``time_limit_s`` bounds the solver; ``gap`` is the relative gap asked for.
    ``milp_s`` bounds each of the MILPs of `nereus`, of which a plan takes up to three, in wall time; None: only their
    nodes and steps are limited, so that the same problem gets the same plan everywhere.
    ``previous``: the allocation in force, where this same strategy made it; None: this is its first. Strategies
    have no other memory. ``at_s``: a steady time in seconds, for strategies that wait. ``arrival_shape``: of the Gamma
    law of the gaps between an application's queries, for strategies that plan for one (1: Poisson arrivals)."""

    devices: tuple[DeviceResources, ...]
    applications: tuple[ApplicationDemand, ...]
    variants: tuple[CandidateVariant, ...]
    time_limit_s: float = 10.0
    gap: float = 0.0
    milp_s: float | None = None
    previous: Allocation | None = None
    at_s: float = 0.0
    costs: CostWeights = CostWeights()
    arrival_shape: float = 0.5


@dataclass(frozen=True)
class Placement:
    """A resident variant. ``rate``: items/s planned for it here. ``max_batch``: rows. ``time_share``: of the
    device's time that the rate takes."""

    device: str
    variant: str
    rate: float
    max_batch: int
    time_share: float


@dataclass(frozen=True)
class PlannedPolicies:
    """Policies by load of an application on some devices, among ``variants`` that are resident there, the fastest
    first."""

    application: str
    devices: tuple[str, ...]
    variants: tuple[str, ...]
    policies: tuple[LoadPolicy, ...]


@dataclass(frozen=True)
class Allocation:
    """A strategy's answer.

    ``served`` and ``left_out``: items/s by application, which add up to the demand. ``revisit_s`` by shared device:
    the longest time between two slices of a resident. ``accuracy``: mean normalised accuracy of what is served.
    ``gap``: certified relative gap between this allocation, as packed on devices, and the solver's bound.
    ``status``: ``optimal`` (the gap asked for is certified; where none is asked for, the strategy's own), ``feasible``
    (it is not), ``heuristic`` (a rule without optimality; the bound is then that of all demand on the most accurate
    variants) or ``empty`` (nothing can be placed).
    ``method``: of `nereus`, ``milp`` where SCIP's MILP decided (its plan, or its proof of the search's), else
    ``search``; empty: of other strategies.
    ``cut_short``: whether the time limit ended a search, whatever the status: only then may the same problem get
    another answer on another machine. ``solve_s``, ``moves`` and this are set where
    strategies are called by their names (:mod:`scheduler.allocation.strategies`).
    ``reasons``: explanations for the operator: what each device got and why, what is left out and why.
    ``prices``: by device type, the price of a second of a device's time (weighted items x normalised accuracy points;
    the duals of the relaxed problem); empty where the strategy has none. ``residents``: all variants to keep loaded
    by device, in the order of loading, those placed there among them; empty where the strategy keeps no others.
    ``provided``: the demand (items/s by application) that these were chosen for. ``refused``: the rules that the
    strategy's own answer breaks, where this one stands in for it (:mod:`scheduler.allocation.fallback`).
    ``policies``: for stacks whose devices choose by them. ``surplus_since``: by device, since when (``Problem.at_s``)
    its resident has not been needed, in strategies that wait before they remove it.
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
    provided: Mapping[str, float] = field(default_factory=dict)
    refused: str = ""
    policies: tuple[PlannedPolicies, ...] = ()
    surplus_since: Mapping[str, float] = field(default_factory=dict)
