"""Workers that choose among resident variants: RAMSIS, Jellyfish+ and ModelSwitching.

These systems leave the number of workers to a resource manager. Here each device serves one application (:func:`deal`),
keeps as many of its undominated variants as it may, and gets its queries in proportion to what its fastest variant
could serve.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scheduler.allocation.capacity import profile_on
from scheduler.allocation.problem import (
    Allocation,
    CandidateVariant,
    DeviceResources,
    PlannedPolicies,
    Problem,
    Strategy,
)
from scheduler.allocation.solver import Budget, time_ran_out
from scheduler.progress import report
from workers.dispatch.latency import LatencyModel
from workers.dispatch.policy_tables import LoadPolicy
from workers.dispatch.standby import MEMORY_SHARE

from ..dedicated import DedicatedChoices, ResidentCapacity, allocation_with, capacity_by_application, evenly
from . import load_limits, load_policies
from .worker import LENGTHS, QUEUE, Worker, WorkerVariant, worker

#: how much busier than a new deal the busiest application may be before devices change applications
BUSIER = 1.25
#: policies of a plan that no time limits, beyond the first of each group of devices: minutes of the slowest ones
POLICIES = 256
#: policies by load of a worker with 1 of ``workers`` shares of an application's queries, around its demand, with the
#: accuracy expected of each
MakePolicies = Callable[[Worker, float, float, load_policies.InTime], Sequence[tuple[LoadPolicy, float]]]


@dataclass(frozen=True)
class _Group:
    """Devices of one application with the same variants and shares of its queries.

    ``workers`` is the inverse of one device's share, ``load`` items/s planned for all of them.
    """

    application: str
    residents: tuple[CandidateVariant, ...]
    worker: Worker
    workers: float
    devices: tuple[str, ...]
    load: float


def ramsis_policies(
    made: Worker, workers: float, demand: float, in_time: load_policies.InTime
) -> list[tuple[LoadPolicy, float]]:
    by_load = load_policies.policies(made, workers, demand, in_time)
    return [(each.policy, each.expected.accuracy) for each in by_load]


def known_load(
    made: Worker, workers: float, demand: float, _in_time: load_policies.InTime
) -> list[tuple[LoadPolicy, float]]:
    """RAMSIS' policy for the demand alone, whatever is measured (Section 7.2)."""
    known = load_policies.evaluated(made, workers, demand or made.capacity() * workers)
    return [(LoadPolicy(sys.float_info.max, known.policy.steps), known.expected.accuracy)]


def _by_load(limits: Callable[[Worker, float, load_policies.InTime], Sequence[LoadPolicy]]) -> MakePolicies:
    def make(
        made: Worker, workers: float, _demand: float, in_time: load_policies.InTime
    ) -> list[tuple[LoadPolicy, float]]:
        return [(policy, made.variants[policy.choose(1, 0.0)].accuracy) for policy in limits(made, workers, in_time)]

    return make


def _in_time(problem: Problem) -> load_policies.InTime:
    """Return a test of whether a plan that begins now may have another policy.

    Policies that are made are remembered: the next plan has them at once, and time for others. Without a limit of time
    they count all the same, as plans must not depend on those before.
    """
    budget = Budget(problem.time_limit_s)
    considered = iter(range(POLICIES))

    def asked() -> bool:
        report()
        if problem.milp_s is None:
            return next(considered, None) is not None
        if budget.left() > 0:
            return True
        time_ran_out()
        return False

    return asked


def _solve(problem: Problem, make: MakePolicies, why: str, lengths: int | None = LENGTHS) -> Allocation:
    in_time, choices = _in_time(problem), DedicatedChoices(problem)
    mains = deal(problem, choices)
    base = allocation_with(
        problem, mains, evenly(problem, mains), why, "Its devices cannot serve more in time: add devices."
    )
    demand = {a.id: a.demand for a in problem.applications}
    policies, residents, accuracy = [], {}, 0.0
    for group in _groups(problem, mains, lengths):
        report()
        made = make(group.worker, group.workers, demand[group.application], in_time)
        promised = next((accuracy for policy, accuracy in made if policy.load >= demand[group.application]), None)
        fastest = group.worker.variants[0]
        accuracy += group.load * (fastest.accuracy if promised is None else promised)
        variants = tuple(variant.id for variant in group.worker.variants)
        policies.append(PlannedPolicies(group.application, group.devices, variants, tuple(p for p, _ in made)))
        for device in group.devices:
            residents[device] = tuple(variant.id for variant in group.residents)
    served = sum(p.rate for p in base.placements)
    return replace(
        base, residents=residents, policies=tuple(policies), accuracy=accuracy / served if served > 0 else base.accuracy
    )


def _groups(problem: Problem, mains: Mapping[str, ResidentCapacity], lengths: int | None) -> list[_Group]:
    capacity = capacity_by_application(mains)
    slo_s = {a.id: a.slo_s for a in problem.applications}
    load = {a.id: min(a.demand, capacity[a.id]) for a in problem.applications}
    alike: dict[tuple, list[ResidentCapacity]] = {}
    for main in mains.values():
        kept = resident_variants(problem, main, slo_s[main.variant.application])
        key = (main.variant.application, main.device.type, main.capacity, tuple(v.id for v in kept))
        alike.setdefault(key, []).append(main)
    groups = []
    for (name, kind, own, _), members in alike.items():
        kept = resident_variants(problem, members[0], slo_s[name])
        made = worker(slo_s[name], [_times(v, kind) for v in kept], lengths)
        if made is not None:
            devices = tuple(main.device.id for main in members)
            share = own * len(members) / capacity[name]
            groups.append(_Group(name, kept, made, capacity[name] / own, devices, load[name] * share))
    return groups


def _times(variant: CandidateVariant, kind: str) -> WorkerVariant:
    latency = LatencyModel(variant.profiles[kind].longest)
    rows = range(1, min(latency.largest, QUEUE) + 1)
    return WorkerVariant(variant.id, variant.accuracy, tuple(latency.seconds(count) for count in rows))


def resident_variants(problem: Problem, main: ResidentCapacity, slo_s: float) -> tuple[CandidateVariant, ...]:
    """Return the variants that the device keeps.

    The one placed there comes first, then as many undominated ones as the device may hold, spread evenly over their
    accuracies, the fastest first.
    """
    device, name = main.device, main.variant.application
    able = {v.id: v for v in problem.variants if v.application == name and profile_on(v, device) is not None}
    made = worker(slo_s, [_times(variant, device.type) for variant in able.values()])
    others = [able[v.id] for v in made.variants if v.id != main.variant.id] if made is not None else []
    most = len(others) if device.max_resident is None else max(0, min(len(others), device.max_resident - 1))
    while True:
        # From the most accurate one down: with the fastest one beside them, the extremes are kept.
        places = {round((len(others) - 1) * (1 - i / most)) for i in range(most)}
        spread = others if most == len(others) else [others[place] for place in sorted(places)]
        kept = (main.variant, *spread)
        if most == 0 or _fit(device, kept):
            return kept
        most -= 1


def _fit(device: DeviceResources, variants: Sequence[CandidateVariant]) -> bool:
    memory = sum(variant.profiles[device.type].memory_bytes for variant in variants)
    return device.memory_bytes is None or memory <= MEMORY_SHARE * device.memory_bytes


def deal(problem: Problem, choices: DedicatedChoices) -> dict[str, ResidentCapacity]:
    """Choose the application that each device serves.

    One device after the other goes to the application that is busiest with what it has. The previous deal is kept while
    it is nearly as even (:data:`BUSIER`) and has the same devices.

    Returns:
        By device, the fastest variant of its application.
    """
    fresh: dict[str, ResidentCapacity] = {}
    for device in problem.devices:
        able = [main for a in problem.applications if (main := choices.fastest(device, a.id)) is not None]
        if able:
            busy = _busy(problem, fresh)
            fresh[device.id] = max(able, key=lambda main: busy[main.variant.application])
    if problem.previous is None:
        return fresh
    kept: dict[str, ResidentCapacity] = {}
    for id, old in choices.residents(problem.previous.placements).items():
        main = choices.fastest(old.device, old.variant.application)
        if main is not None:
            kept[id] = main
    without, busiest = _worst(problem, kept)
    fresh_without, fresh_busiest = _worst(problem, fresh)
    even = without <= fresh_without and busiest <= BUSIER * fresh_busiest
    return kept if even and kept.keys() == fresh.keys() else fresh


def _busy(problem: Problem, mains: Mapping[str, ResidentCapacity]) -> dict[str, tuple[bool, float]]:
    capacity = capacity_by_application(mains)
    return {
        a.id: (not capacity[a.id], a.weight * a.demand if not capacity[a.id] else a.demand / capacity[a.id])
        for a in problem.applications
    }


def _worst(problem: Problem, mains: Mapping[str, ResidentCapacity]) -> tuple[bool, float]:
    return max(_busy(problem, mains).values(), default=(False, 0.0))


_RAMSIS = "Each device serves one application and chooses among its variants by policies for the present load."
_ONE = "Each device serves one application, and all of them run the variant that the present load allows"
STRATEGIES: Mapping[str, Strategy] = {
    "ramsis": partial(_solve, make=ramsis_policies, why=_RAMSIS),
    "ramsis-by-models": partial(_solve, make=ramsis_policies, why=_RAMSIS, lengths=None),
    "ramsis-known-load": partial(_solve, make=known_load, why=_RAMSIS),
    "jellyfish+": partial(
        _solve,
        make=_by_load(lambda made, workers, _: load_limits.jellyfish(made, workers)),
        why=f"{_ONE}, by the throughput of its batches.",
    ),
    "modelswitching": partial(
        _solve, make=_by_load(load_limits.model_switching), why=f"{_ONE}, by its response times at that load."
    ),
}
