"""The MILP of device sharing over groups of identical devices.

Per group g, revisit period D and variant m (safe by the rules of :mod:`.time_slices`):

- n[g,D]: devices of the group with that revisit period, integer; x[g,m]: devices dedicated to m, as in Eq. 1 and 5;
- r[g,D,m]: residents, integer; w[g,D,m]: the rows of all their slices together, integer;
- y: the share of the application's demand, so that z = y * s <= w / D, or for dedicated devices Eq. 5.

sum_m (alpha r + beta w) <= budget(D) n, sum_m memory r <= memory n, sum_m r <= max_resident n, and at most one variant
of an application on a device: sum_{m of q} r <= n. With groups of one device this is exact. With larger groups it
relaxes the packing onto devices, so its optimum is a bound and :mod:`.packing` makes the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyscipopt import quicksum

from .groups import IdenticalDevices
from .problem import Problem
from .proteus import PRICE_OF_ALL_LOADS, SERVED_TOLERANCE, DedicatedOption, dedicated_options
from .solver import favour_speed, names, new_model
from .time_slices import SliceOption, revisit_periods, slice_budget_s, slice_options


@dataclass(frozen=True)
class Choices:
    """Options of a model over ``groups``."""

    groups: list[IdenticalDevices]
    dedicated: list[DedicatedOption]
    shared: list[SliceOption]

    @property
    def size(self) -> int:
        return len(self.dedicated) + len(self.shared)


def choices(
    problem: Problem, groups: list[IdenticalDevices], keep: Callable[[int, float, str], bool] | None = None
) -> Choices:
    """All useful options; ``keep(group, revisit period or 0, variant id)`` narrows them."""
    periods = revisit_periods([a for a in problem.applications if a.demand > 0])
    dedicated = dedicated_options(problem, groups, keep)
    shared = slice_options(problem, groups, periods, keep)
    return Choices(groups, dedicated, shared)


def dedicated_names(option: DedicatedOption) -> tuple[str, str]:
    """Names of the variables x and y of a dedicated option."""
    return names(("x", option.group, option.variant.id)), names(("y", option.group, 0, option.variant.id))


def shared_names(option: SliceOption) -> tuple[str, str, str]:
    """Names of the variables r, w and y of a shared option."""
    key = (option.group, option.revisit_s, option.variant.id)
    return names(("r", *key)), names(("w", *key)), names(("y", *key))


class SharingModel:
    """One SCIP model: ``served`` (share of the weighted demand) and ``objective`` (percent, less prices)."""

    def __init__(self, problem: Problem, offered: Choices):
        self.model = model = new_model()
        favour_speed(model)
        groups = offered.groups
        demand = {a.id: a.demand for a in problem.applications if a.demand > 0}
        weighted = {a.id: a.demand * a.weight for a in problem.applications if a.demand > 0}
        total = sum(weighted.values())
        shares: dict[str, list] = {q: [] for q in demand}
        classes: dict[tuple[int, float], list[tuple[SliceOption, object, object]]] = {}
        used: dict[int, list] = {}
        hosted: dict[tuple[int, str], list] = {}
        served, accuracy = [], []

        def count(q: str, option: DedicatedOption | SliceOption, y) -> None:
            shares[q].append(y)
            served.append(weighted[q] / total * y)
            accuracy.append(weighted[q] / total * option.variant.accuracy * y)

        for option in offered.dedicated:
            q = option.variant.application
            x_name, y_name = dedicated_names(option)
            x = model.addVar(x_name, vtype="I", lb=0, ub=len(groups[option.group]))
            y = model.addVar(y_name, lb=0, ub=1)
            model.addCons(y <= min(option.rate / demand[q], 1.0) * x)  # Eq. 5
            used.setdefault(option.group, []).append(x)
            hosted.setdefault((option.group, option.variant.id), []).append(x)
            count(q, option, y)
        for option in offered.shared:
            q, size = option.variant.application, len(groups[option.group])
            r_name, w_name, y_name = shared_names(option)
            r = model.addVar(r_name, vtype="I", lb=0, ub=size)
            w = model.addVar(w_name, vtype="I", lb=0, ub=size * option.cost.max_rows)
            y = model.addVar(y_name, lb=0, ub=1)
            model.addCons(w >= r)
            model.addCons(w <= option.cost.max_rows * r)
            model.addCons(y <= 1 / (option.revisit_s * demand[q]) * w)
            model.addCons(y <= min(option.most_rate / demand[q], 1.0) * r)
            classes.setdefault((option.group, option.revisit_s), []).append((option, r, w))
            hosted.setdefault((option.group, option.variant.id), []).append(r)
            count(q, option, y)
        for (g, revisit_s), members in classes.items():
            group = groups[g]
            n = model.addVar(names(("n", g, revisit_s)), vtype="I", lb=0, ub=len(group))
            used.setdefault(g, []).append(n)
            budget_s = slice_budget_s(group, revisit_s)
            # In units of the slice budget: seconds would be close to the solver's feasibility tolerance.
            model.addCons(
                quicksum(o.cost.alpha_s / budget_s * r + o.cost.beta_s / budget_s * w for o, r, w in members) <= n
            )
            if group.one.memory_bytes is not None:
                model.addCons(quicksum(o.memory_bytes / max(group.one.memory_bytes, 1) * r for o, r, _ in members) <= n)
            if group.one.max_resident is not None:
                model.addCons(quicksum(r for _, r, _ in members) <= group.one.max_resident * n)
            by_application: dict[str, list] = {}
            for option, r, _ in members:
                by_application.setdefault(option.variant.application, []).append(r)
            for residents in by_application.values():
                model.addCons(quicksum(residents) <= n)
        for g, variables in used.items():
            model.addCons(quicksum(variables) <= len(groups[g]))
        self.shares = shares
        for variables in shares.values():
            if variables:
                model.addCons(quicksum(variables) <= 1)  # Eq. 2
        loads = []
        for (g, variant), residents in hosted.items():
            loads += residents
            there = sum(variant in device.loaded for device in groups[g].devices)
            if there:
                k = model.addVar(names(("k", g, variant)), lb=0, ub=there)
                model.addCons(k <= quicksum(residents))
                loads.append(-1 * k)
        self.served = quicksum(served)
        devices = sum(len(group) for group in groups)
        self.objective = quicksum(accuracy) - load_price(devices, len(demand)) * quicksum(loads)

    def serve(self, share: float) -> None:
        """At least this share of the weighted demand is served; all of each application's where it is 1."""
        if share >= 1 - SERVED_TOLERANCE:
            for variables in self.shares.values():
                if variables:
                    self.model.addCons(quicksum(variables) == 1)
        else:
            self.model.addCons(self.served >= share - SERVED_TOLERANCE * share)


def load_price(devices: int, applications: int) -> float:
    """Points of accuracy per load: about as many residents as devices and applications are loaded at most."""
    return PRICE_OF_ALL_LOADS / (devices + applications)
