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
    """Return all useful options.

    Args:
        keep: called with (group, revisit period or 0, variant id), narrows them.
    """
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
    """One SCIP model of device sharing.

    Variables and constraints are added in one order, on which SCIP's choice among equally good plans depends.

    Attributes:
        served: share of the weighted demand.
        objective: percent, less the price of loads.
    """

    def __init__(self, problem: Problem, offered: Choices):
        self.model = new_model()
        favour_speed(self.model)
        groups = offered.groups
        self._groups = groups
        self._demand = {a.id: a.demand for a in problem.applications if a.demand > 0}
        self._weighted = {a.id: a.demand * a.weight for a in problem.applications if a.demand > 0}
        self._total = sum(self._weighted.values())
        #: by application: the shares of its demand
        self.shares: dict[str, list] = {q: [] for q in self._demand}
        #: by group: counts of devices
        self._used: dict[int, list] = {}
        #: by group and variant: counts of residents
        self._hosted: dict[tuple[int, str], list] = {}
        self._served: list = []
        self._accuracy: list = []
        for option in offered.dedicated:
            self._add_dedicated(option)
        classes: dict[tuple[int, float], list[tuple[SliceOption, object, object]]] = {}
        for option in offered.shared:
            r, w = self._add_shared(option)
            classes.setdefault((option.group, option.revisit_s), []).append((option, r, w))
        for (g, revisit_s), members in classes.items():
            self._add_shared_devices(g, revisit_s, members)
        for g, variables in self._used.items():
            self.model.addCons(quicksum(variables) <= len(groups[g]))
        for variables in self.shares.values():
            if variables:
                self.model.addCons(quicksum(variables) <= 1)  # Eq. 2
        loads = self._loads()
        self.served = quicksum(self._served)
        devices = sum(len(group) for group in groups)
        self.objective = quicksum(self._accuracy) - load_price(devices, len(self._demand)) * quicksum(loads)

    def _add_dedicated(self, option: DedicatedOption) -> None:
        q, model = option.variant.application, self.model
        x_name, y_name = dedicated_names(option)
        x = model.addVar(x_name, vtype="I", lb=0, ub=len(self._groups[option.group]))
        y = model.addVar(y_name, lb=0, ub=1)
        model.addCons(y <= min(option.rate / self._demand[q], 1.0) * x)  # Eq. 5
        self._used.setdefault(option.group, []).append(x)
        self._hosted.setdefault((option.group, option.variant.id), []).append(x)
        self._count(q, option, y)

    def _add_shared(self, option: SliceOption) -> tuple[object, object]:
        """Returns the variables r and w."""
        q, model, size = option.variant.application, self.model, len(self._groups[option.group])
        r_name, w_name, y_name = shared_names(option)
        r = model.addVar(r_name, vtype="I", lb=0, ub=size)
        w = model.addVar(w_name, vtype="I", lb=0, ub=size * option.cost.max_rows)
        y = model.addVar(y_name, lb=0, ub=1)
        model.addCons(w >= r)
        model.addCons(w <= option.cost.max_rows * r)
        model.addCons(y <= 1 / (option.revisit_s * self._demand[q]) * w)
        model.addCons(y <= min(option.most_rate / self._demand[q], 1.0) * r)
        self._hosted.setdefault((option.group, option.variant.id), []).append(r)
        self._count(q, option, y)
        return r, w

    def _count(self, q: str, option: DedicatedOption | SliceOption, y) -> None:
        self.shares[q].append(y)
        self._served.append(self._weighted[q] / self._total * y)
        self._accuracy.append(self._weighted[q] / self._total * option.variant.accuracy * y)

    def _add_shared_devices(self, g: int, revisit_s: float, members: list[tuple[SliceOption, object, object]]) -> None:
        """Add the devices of a group with one revisit period.

        Their time, memory and residents are limited, and so are residents of one application to one a device.
        """
        model, group = self.model, self._groups[g]
        n = model.addVar(names(("n", g, revisit_s)), vtype="I", lb=0, ub=len(group))
        self._used.setdefault(g, []).append(n)
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

    def _loads(self) -> list:
        """Return terms whose sum is the number of loads.

        Loads are residents beyond those that are loaded already.
        """
        loads = []
        for (g, variant), residents in self._hosted.items():
            loads += residents
            there = sum(variant in device.loaded for device in self._groups[g].devices)
            if there:
                k = self.model.addVar(names(("k", g, variant)), lb=0, ub=there)
                self.model.addCons(k <= quicksum(residents))
                loads.append(-1 * k)
        return loads

    def serve(self, share: float) -> None:
        """Require that at least this share of the weighted demand is served.

        Where it is 1, all of each application's demand is served.
        """
        if share >= 1 - SERVED_TOLERANCE:
            for variables in self.shares.values():
                if variables:
                    self.model.addCons(quicksum(variables) == 1)
        else:
            self.model.addCons(self.served >= share - SERVED_TOLERANCE * share)


def load_price(devices: int, applications: int) -> float:
    """Return the points of accuracy that a load costs.

    About as many residents as devices and applications are loaded at most.
    """
    return PRICE_OF_ALL_LOADS / (devices + applications)
