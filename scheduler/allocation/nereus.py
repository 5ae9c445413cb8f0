"""`nereus`: the most weighted queries first, then accuracy.

Devices' time is divided. A plan is made in these steps:

1. The relaxed problem (:mod:`.relaxation`) bounds every plan and prices devices' time.
2. Local search (:mod:`.local_search`) over device counts (:mod:`.device_counts`) decides how many devices of each group
   serve each application. It starts from the relaxed solution rounded down, and from the plan in force. Devices that
   whole counts cannot use well are shared (:mod:`.sharing_search`).
3. Up to :data:`MILP_DEVICES`, exchanges of single devices improve these, SCIP solves the MILP over the same counts
   (:mod:`.milp`) from the best of them, and branch and price gives a tighter bound.
4. Counts are disaggregated into residents and rates (:mod:`.disaggregation`) and assigned to the devices that have them
   loaded (:mod:`.assign`). The counts of the highest value less switching cost (:mod:`.switching_cost`) win.
5. Pinned variants are placed (:mod:`.pins`).

The certified gap is that between the plan as packed and the bounds. Differences from Proteus' Eq. 1 to 7: a device is
dedicated to an application rather than to a variant, and devices may be shared between applications in time slices.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from . import milp
from .concrete import allocation_of, nothing_planned, on_devices
from .device_counts import DeviceCounts, SharedDevice
from .disaggregation import use_idle_devices
from .group_options import FLOOR, SERVED, GroupOptions
from .groups import grouped
from .knapsack import best_shared, fits
from .local_search import hill_climb
from .pins import reservations
from .problem import CERTIFIED, Allocation, DeviceResources, Problem
from .relaxation import Relaxation, relax
from .sharing_search import SharingSearch, use_free_devices
from .switching_cost import SwitchingCosts
from .time_slices import revisit_periods

#: Gap asked for where the problem asks for none: a tenth of a point of accuracy.
GAP = 1e-3
#: Most devices for the MILP; with more of them the search certifies as much.
MILP_DEVICES = 200
#: Gap of the search's plan, and of the MILP's, from which the MILP has nothing left to gain.
MILP_GAP = 2e-4
#: Table cells that the search may evaluate for a gap that counts as proved, beyond its own (0.3 s of work).
EFFORT = 20_000_000
#: Smallest gain of a search step, in points, as a share of the weighted demand.
STEP = 1e-6


def solve(problem: Problem) -> Allocation:
    """Return the allocation, without reasons.

    ``objective`` and ``bound`` are percent: the sum over the demand of weight * accuracy / weighted demand.
    """
    return _planned(problem, True)


def search(problem: Problem) -> Allocation:
    """Return the search's allocation, without the MILP.

    It is for plans that only say which variants to keep loaded.
    """
    return _planned(problem, False)


def _planned(problem: Problem, exact: bool) -> Allocation:
    plan, missing = _solve(problem, {}, exact)
    if missing:
        # Reserve memory for the pinned variants that did not fit, and plan with what remains.
        reserved = reservations(problem, missing)
        if reserved:
            plan, _ = _solve(problem, reserved, exact)
    return plan


def relaxed(problem: Problem) -> Relaxation | None:
    """Return the relaxed problem's optimum; None where nothing can be served.

    It is the most that can be served, the bound on accuracy, and the prices of time.
    """
    return _relaxed(problem, {})[1]


def _relaxed(problem: Problem, reserved: dict[str, DeviceResources]) -> tuple[GroupOptions, Relaxation | None]:
    groups = grouped(reserved.get(device.id, device) for device in problem.devices)
    options = GroupOptions(groups, [a for a in problem.applications if a.demand > 0], problem.variants)
    return options, relax(options) if groups and options.applications else None


def _solve(problem: Problem, reserved: dict[str, DeviceResources], exact: bool) -> tuple[Allocation, list[str]]:
    """The allocation, and the pinned variants that do not fit.

    Args:
        reserved: by id, devices less reservations.
        exact: whether the MILP may be solved.
    """
    options, bound = _relaxed(problem, reserved)
    if bound is None:
        return nothing_planned(problem)
    switching = SwitchingCosts(options, bound)
    candidates = _counts(problem, options, bound, switching, exact)
    proved = _proved(problem, candidates, bound) if exact else None
    if proved is not None:
        candidates.append(proved.counts)
        bound = replace(bound, combined=proved.bound, limited=proved.limited, counted=proved.counted)
    plans = []
    for counts in candidates:
        # The MILP's counts may be those that it started from.
        own = counts.copy()
        use_idle_devices(own)
        plans.append(on_devices(own, switching))
    best = max(range(len(plans)), key=lambda i: plans[i].value)
    plan, missing = allocation_of(problem, options, bound, plans[best], max(problem.gap, GAP))
    decides = proved is not None and (best == len(plans) - 1 or plan.gap <= CERTIFIED)
    return replace(plan, method="milp" if decides else "search"), missing


def _proved(problem: Problem, candidates: list[DeviceCounts], relaxed: Relaxation) -> milp.MilpPlan | None:
    """Return the MILP's answer, or None.

    None: there are too many devices for it, the search leaves it nothing to gain, or the model would be too large.
    """
    start = max(candidates, key=lambda counts: counts.value)
    if len(problem.devices) > MILP_DEVICES or start.value >= _most(relaxed) - MILP_GAP * relaxed.points:
        return None
    shareable = any(_shareable(group.one) for group in start.options.groups)
    periods = revisit_periods(start.options.applications) if shareable else []
    return milp.improve(start, periods, max(problem.gap, MILP_GAP), problem.milp_s, _most(relaxed))


def _most(relaxed: Relaxation) -> float:
    """The relaxation's bound in the units of ``DeviceCounts.value``."""
    return relaxed.points + SERVED * relaxed.served + (FLOOR - SERVED) * relaxed.floors


def _counts(
    problem: Problem, options: GroupOptions, relaxed: Relaxation, switching: SwitchingCosts, exact: bool
) -> list[DeviceCounts]:
    """Candidate counts, at least one; those of the plan in force first."""
    min_gain = STEP * sum(a.weight * a.demand for a in options.applications)
    target = _most(relaxed) - max(problem.gap, GAP) * relaxed.points
    found = []
    if problem.previous is not None and switching.loads_take_time:
        kept = _counts_in_force(
            GroupOptions(options.groups, options.applications, problem.variants, loaded_only=True), problem.previous
        )
        if kept.value >= target:
            return [kept]
        hill_climb(kept, min_gain, target)
        found.append(kept)
    counts = DeviceCounts(options)
    counts.set(np.floor(relaxed.time + 1e-6))
    hill_climb(counts, min_gain, target)
    if counts.value < target:
        periods = (
            revisit_periods(options.applications) if any(_shareable(group.one) for group in options.groups) else []
        )
        shared = DeviceCounts(options)
        shared.set(np.floor(relaxed.time + 1e-6))
        use_free_devices(shared, periods, min_gain)
        counts = max((counts, shared), key=lambda c: c.value)
        SharingSearch(counts, periods, min_gain, target).run()
        if exact and len(problem.devices) > milp.BRANCHED:
            # Nothing splits plans of so many devices: the search goes on instead.
            certified = _most(relaxed) - max(problem.gap, CERTIFIED) * relaxed.points
            SharingSearch(counts, periods, min_gain, certified, EFFORT).run()
    return [*found, counts]


def _shareable(device: DeviceResources) -> bool:
    return device.max_resident is None or device.max_resident > 1


def _counts_in_force(options: GroupOptions, previous: Allocation) -> DeviceCounts:
    """The counts of the plan in force, as far as its devices and variants still exist.

    Its slices need not fit any more: latencies drift, and time is reserved for profiling. Such a device gets the best
    slices of the variants that it holds."""
    group_of = {device.id: g for g, group in enumerate(options.groups) for device in group.devices}
    index = {a.id: q for q, a in enumerate(options.applications)}
    owner = {v.id: index[a.id] for a in options.applications for v in options.variants(a.id)}
    working: dict[str, list] = {}
    for placement in previous.placements:
        if placement.rate > 0 and placement.device in group_of and placement.variant in owner:
            working.setdefault(placement.device, []).append(placement)
    dedicated = np.zeros((len(options.applications), len(options.groups)), dtype=int)
    shared, too_full = [], []
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
        (shared if fits(held, options.groups[g]) else too_full).append(held)
    counts = DeviceCounts(options)
    counts.set(dedicated, [device for device in shared if device.residents])
    for device in too_full:
        variants = {slice_.variant.id for _, slice_, _ in device.residents}
        _, smaller = best_shared(counts, device.group, device.revisit_s, variants)
        if smaller is not None:
            counts.share(smaller)
    return counts
