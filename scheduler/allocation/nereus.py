"""`nereus`: the most weighted queries first, then accuracy.

Devices' time is divided. A plan is made in these steps, whatever the number of devices:

1. The relaxed problem (:mod:`.relaxation`) bounds every plan and prices devices' time. Rounded down and filled by
   exchanges (:mod:`.exchanges`) it is the start, and often the plan.
2. Columns are generated for the relaxation of the MILP over device counts (:mod:`.columns`), which tightens the bound.
   It is rounded device by device, with more columns after each, and improved by exchanges.
3. SCIP solves the MILP over the most promising columns, from the best plan so far.
4. Counts are disaggregated into residents and rates (:mod:`.disaggregation`) and assigned to the devices that have them
   loaded (:mod:`.assign`). The counts of the highest value minus switching cost (:mod:`.switching_cost`) win, those of
   the plan in force among them.
5. Pinned variants are placed (:mod:`.pins`).

The certified gap is that between the plan as packed and the bounds. Differences from Proteus' Eq. 1 to 7: a device is
dedicated to an application rather than to a variant, and devices may be shared between applications in time slices.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .columns import FIRST, Program
from .concrete import EXACT, certified, on_devices
from .contents import fits
from .device_counts import DeviceCounts, SharedDevice
from .disaggregation import use_idle_devices
from .exchanges import GAIN, Exchanges
from .group_options import FLOOR, SERVED, GroupOptions, revisit_periods
from .groups import grouped
from .outcome import outcome
from .pins import with_pinned, with_reservations
from .problem import CERTIFIED, Allocation, Problem
from .relaxation import Relaxation, most_multiple, relax
from .solver import Budget, time_ran_out
from .switching_cost import SwitchingCosts

#: Gap asked for where the problem asks for none: a tenth of a point of accuracy.
GAP = 1e-3
#: Slices of all groups and revisit periods for which the relaxation converges: of more, fewer periods are tried.
LARGEST = 3_000
#: Part of a device's time below which an application is small, and part of it that its slices may take then.
SMALL, SMALL_SLICE = 0.01, 0.25
#: Rounded relaxations that gained nothing, one after the other, after which SCIP's turn comes.
STALE = 40


def solve(problem: Problem) -> Allocation:
    """Return the allocation, without reasons.

    ``objective`` and ``bound`` are percent: the sum over the demand of weight * accuracy / weighted demand.
    """
    plan, missing = with_pinned(problem, _solve(problem))
    if missing:
        # Reserve memory for the pinned variants that did not fit, and plan with what remains.
        plan, _ = with_pinned(problem, _solve(with_reservations(problem, missing)))
    return plan


def start(problem: Problem) -> Allocation:
    return with_pinned(problem, _solve(replace(problem, previous=None), improve=False))[0]


def relaxed(problem: Problem) -> Relaxation | None:
    """What can be served, a bound on accuracy, prices of time; None: nothing can be."""
    return _relaxed(problem)[1]


def carried(problem: Problem) -> float:
    """The largest multiple of the demand that divisible devices could carry."""
    options = _options(problem)
    return most_multiple(options) if options.applications else math.inf


def with_small_served(problem: Problem) -> Problem:
    """Return the problem with floors of all of the demand of small applications: others hardly gain by their loss."""
    options = _options(problem)
    if not options.applications:
        return problem
    revisit_s = min(revisit_periods(options.applications))
    small: set[str] = set()
    for q, application in enumerate(options.applications):
        rates = [point.rate for mine in options.by_application[q].operating_points for point in mine]
        if application.demand > SMALL * max(rates, default=0.0):
            continue
        for g in range(len(options.groups)):
            table = options.slices(g, revisit_s)
            enough = np.array([slice_.rate >= application.demand for slice_ in table.slices], dtype=bool)
            if ((table.owner == q) & (table.seconds <= SMALL_SLICE) & enough).any():
                small.add(application.id)
    applications = tuple([replace(a, floor=1.0) if a.id in small else a for a in problem.applications])
    return replace(problem, applications=applications) if small else problem


def _options(problem: Problem) -> GroupOptions:
    asked = [a for a in problem.applications if a.demand > 0]
    return GroupOptions(grouped(problem.devices), asked, problem.variants)


def _relaxed(problem: Problem) -> tuple[GroupOptions, Relaxation | None]:
    options = _options(problem)
    return options, relax(options) if options.groups and options.applications else None


def _solve(problem: Problem, improve: bool = True) -> Allocation:
    """The allocation before pinned variants; ``improve``: beyond the start."""
    # Divisible devices bound every plan, and price devices' time.
    options, bound = _relaxed(problem)
    if bound is None:
        return replace(outcome(problem, ()), prices={device.type: 0.0 for device in problem.devices})
    switching = SwitchingCosts(options, bound)
    gap = max(problem.gap, GAP)
    floors = sum(a.weight * a.demand * a.floor for a in options.applications)
    enough = bound.points * (1 - gap) + SERVED * bound.served + (FLOOR - SERVED) * floors
    budget = Budget(math.inf if problem.milp_s is None else problem.milp_s)

    # Where loads take time, the plan in force is adapted to the demand, with what is loaded.
    candidates = []
    if problem.previous is not None and switching.loads_take_time:
        loaded = GroupOptions(options.groups, options.applications, problem.variants, loaded_only=True)
        in_force = _counts_in_force(loaded, problem.previous)
        if in_force.value < enough:
            Exchanges(Program(loaded, periods(loaded)), budget).improve(in_force)
        candidates.append(in_force)

    # If that is not enough, device counts are searched for: the relaxation rounded down and exchanged, columns, their
    # relaxation rounded and exchanged, SCIP.
    if not candidates or candidates[0].value < enough:
        search = Search(options, bound, budget, gap)
        search.run(enough if improve else -math.inf)
        candidates.append(search.best)
        bound = replace(
            bound, combined=search.bound, worth=search.worth, limited=search.limited, counted=search.counted
        )

    # Counts become residents and rates on devices, and the best after its loads is the plan.
    plans = []
    for counts in candidates:
        use_idle_devices(counts)
        plans.append(on_devices(problem, counts, switching))
    _, best = max(plans, key=lambda plan: plan[0])
    plan = certified(problem, options, bound, best, gap)
    return replace(plan, method="milp" if bound.combined < math.inf else "search")


class Search:
    """The best counts so far, and bounds of plans that serve as much within floors as the start, weighted.

    Args:
        gap: relative gap of the points at which the search ends.

    Attributes:
        bound: (``worth`` + accuracy) points/s; infinite where none was sought.
        limited: the same, where more than ``counted`` weighted items/s served only count by their accuracy.
    """

    def __init__(self, options: GroupOptions, relaxed: Relaxation, budget: Budget, gap: float):
        self.best = DeviceCounts(options)
        self.best.set(np.floor(relaxed.time + EXACT))
        self.bound = self.limited = self.counted = math.inf
        self.worth = SERVED
        self._program, self._budget, self._gap = Program(options, periods(options)), budget, gap
        self._exchanges = Exchanges(self._program, budget)

    def run(self, enough: float) -> None:
        """Search; a start that is worth ``enough`` is not improved."""
        program, budget = self._program, self._budget
        self._exchanges.improve(self.best)
        if self.best.value >= enough:
            return
        at = program.evaluated(self.best, start=True)
        if at is None:
            return
        self._at, total = at, program.total
        self._root = program.bound(at.value + self._gap * at.points, budget)
        self.bound = self._root * total
        if program.values:
            self._round()
            self._tighten()
            if not self._within(self._gap):
                self._take(program.best_counts(self._at, budget))
                self._exchange(self.best.copy())
        if self._at.values[0] < 1 - EXACT:
            # At most so much more may be served; how accurately is bounded apart.
            served, value = self._at.values[0], FIRST * self._at.values[0] + self._at.points
            certified = value + CERTIFIED * self._at.points
            self.counted = served * total
            self.limited = program.bound(value, budget, FIRST, served, certified) * total

    def _tighten(self) -> None:
        """Bound plans by their parts; what the relaxations of these use are columns for SCIP."""
        program, at, served = self._program, self._at, self._at.values[0]
        if served < 1 - EXACT:
            self.worth = FIRST
        elif self._within(CERTIFIED):
            return
        certified = self.worth * served + (1 + CERTIFIED) * at.points
        self.bound = program.bound(certified, self._budget, self.worth, certified=certified) * program.total

    def _round(self) -> None:
        """Round the relaxation, and exchange, as long as that gains."""
        stale = 0
        while not self._within(CERTIFIED) and stale < STALE and self._exchanges.work > 0:
            if self._budget.left() <= 0:
                time_ran_out()
                return
            stale = 0 if self._exchange(self._exchanges.rounded()) else stale + 1

    def _exchange(self, counts: DeviceCounts) -> bool:
        self._exchanges.improve(counts)
        self._program.add(counts.shared)
        return self._take(counts)

    def _take(self, counts: DeviceCounts | None) -> bool:
        if counts is None or counts.value <= self.best.value + GAIN * self._program.total:
            return False
        evaluated = self._program.evaluated(counts)
        if evaluated is not None:
            self.best, self._at = counts, evaluated
        return evaluated is not None

    def _within(self, gap: float) -> bool:
        return self._root - self._at.value <= gap * self._at.points


def periods(options: GroupOptions) -> list[float]:
    shareable = [g for g, group in enumerate(options.groups) if group.one.max_resident != 1]
    tried = revisit_periods(options.applications) if shareable else []
    while len(tried) > 1 and sum(len(options.slices(g, p).slices) for g in shareable for p in tried) > LARGEST:
        # Every other one, and with them the smallest, which admits every application.
        tried = tried[::2]
    return tried


def _counts_in_force(options: GroupOptions, previous: Allocation) -> DeviceCounts:
    """The counts of the plan in force, as far as its devices and variants still exist.

    Its slices need not fit any more: latencies drift, and time is reserved for profiling. Such devices are free.
    """
    group_of = {device.id: g for g, group in enumerate(options.groups) for device in group.devices}
    index = {a.id: q for q, a in enumerate(options.applications)}
    owner = {v.id: index[a.id] for a in options.applications for v in options.variants(a.id)}
    working: dict[str, list] = {}
    for placement in previous.placements:
        if placement.rate > 0 and placement.device in group_of and placement.variant in owner:
            working.setdefault(placement.device, []).append(placement)
    dedicated = np.zeros((len(options.applications), len(options.groups)), dtype=int)
    shared = []
    for device, residents in working.items():
        g, revisit_s = group_of[device], previous.revisit_s.get(device, 0.0)
        if not revisit_s:
            q = owner[residents[0].variant]
            dedicated[q, g] += bool(options.by_application[q].operating_points[g])
            continue
        wanted = {(p.variant, p.max_batch) for p in residents}
        table = options.slices(g, revisit_s)
        slices = [
            (int(q), slice_, earns)
            for q, slice_, earns in zip(table.owner, table.slices, table.earns, strict=True)
            if (slice_.variant.id, slice_.rows) in wanted
        ]
        held = SharedDevice(g, revisit_s, tuple(slices))
        if slices and fits(held, options.groups[g]):
            shared.append(held)
    counts = DeviceCounts(options)
    counts.set(dedicated, shared)
    return counts
