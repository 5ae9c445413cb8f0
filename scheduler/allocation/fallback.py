"""An allocation that breaks no rule, whatever a strategy answers.

So there is a plan as long as one can be made. Tried in order: the strategy's answer; its answer without the plan in
force, which may ask for what is not possible any more; a greedy plan; pinned variants alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from workers import log

from .groups import IdenticalDevices, singles
from .pins import with_pinned
from .problem import Allocation, Problem
from .reasons import explained
from .residents import ResidentCapacity, assemble
from .strategies import Strategy, UnusableProblem
from .time_slices import SliceOption, revisit_periods, slice_budget_s, slice_options
from .verification import faults, violations

logger = log.get("fallback")

#: Number of broken rules that a refusal quotes.
QUOTED = 5


class NoAllocation(Exception):
    """No allocation was found that keeps every rule.

    The message has the rules that the last one tried breaks.
    """


def verified(problem: Problem, strategy: Strategy) -> Allocation:
    """Return the first allocation tried that breaks no rule, with reasons.

    Where that is not the strategy's own answer, ``refused`` and the first reason say why.

    Raises:
        UnusableProblem: the problem itself has faults.
        NoAllocation: every allocation breaks a rule.
    """
    found = faults(problem)
    if found:
        raise UnusableProblem(found)
    ways: list[tuple[str, Callable[[], Allocation]]] = [("", lambda: strategy(problem))]
    if problem.previous is not None:
        ways.append(("made without regard to the plan in force", lambda: strategy(replace(problem, previous=None))))
    ways.append(("the greedy one", lambda: greedy(problem)))
    ways.append(("one that serves nothing until the next plan", lambda: _nothing(problem)))
    refused = ""
    for instead, way in ways:
        try:
            allocation = way()
            fault = "; ".join(violations(problem, allocation)[:QUOTED])
            allocation = allocation if fault else explained(problem, allocation)
        except Exception as error:
            # A solver that fails must not end planning either.
            logger.exception("allocation_failed", instead=instead)
            fault = f"{type(error).__name__}: {error}"
        if not fault:
            if not refused:
                return allocation
            why = f"The strategy's allocation was refused, this plan is {instead}: {refused}"
            return replace(allocation, refused=refused, reasons=(why, *allocation.reasons))
        logger.error("allocation_refused", instead=instead, fault=fault)
        refused = refused or fault
    raise NoAllocation(fault)


def greedy(problem: Problem) -> Allocation:
    """Share every device between the fastest variants of all applications.

    This uses no solver, and does not regard the plan in force. Pinned variants stand by where they fit.
    """
    problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    active = [a for a in problem.applications if a.demand > 0]
    plans = [_nothing(problem), *(_shared(problem, revisit_s) for revisit_s in revisit_periods(active))]
    weight = {a.id: a.weight for a in problem.applications}
    return max(plans, key=lambda plan: sum(weight[name] * rate for name, rate in plan.served.items()))


def _shared(problem: Problem, revisit_s: float) -> Allocation:
    left = {a.id: a.demand for a in problem.applications}
    weight = {a.id: a.weight for a in problem.applications}
    residents: list[ResidentCapacity] = []
    rates: dict[str, float] = {}
    groups = singles(problem.devices)
    options = slice_options(problem, groups, revisit_s)
    for g, group in enumerate(groups):
        fastest: dict[str, SliceOption] = {}
        for option in (option for option in options if option.group == g):
            rival = fastest.get(option.variant.application)
            if rival is None or _row_s(option) < _row_s(rival):
                fastest[option.variant.application] = option
        rows = _rows(group, fastest, {name: left[name] * weight[name] for name in fastest}, left)
        for name, count in rows.items():
            option, rate = fastest[name], min(left[name], count / revisit_s)
            resident = ResidentCapacity(
                group.one, option.variant, count / revisit_s, count, revisit_s=revisit_s, cost=option.cost
            )
            residents.append(resident)
            rates[option.variant.id] = rates.get(option.variant.id, 0.0) + rate
            left[name] -= rate
    return replace(with_pinned(problem, assemble(problem, residents, rates)), status="heuristic")


def _row_s(option: SliceOption) -> float:
    return option.cost.seconds(option.cost.max_rows) / option.cost.max_rows


def _rows(
    group: IdenticalDevices, options: Mapping[str, SliceOption], worth: Mapping[str, float], left: Mapping[str, float]
) -> dict[str, int]:
    """Rows a slice by application.

    Each one that fits has one row, the worthiest first; then the least served ones get more.
    """
    device, rows = group.one, {}
    time_s = memory = 0.0
    for name in sorted(options, key=lambda name: -worth[name]):
        option = options[name]
        budget_s = slice_budget_s(group, option.revisit_s)
        fits = device.memory_bytes is None or memory + option.memory_bytes <= device.memory_bytes
        room = device.max_resident is None or len(rows) < device.max_resident
        if worth[name] > 0 and fits and room and time_s + option.cost.seconds(1) <= budget_s:
            rows[name], time_s, memory = 1, time_s + option.cost.seconds(1), memory + option.memory_bytes
    while True:
        growing = [
            name
            for name, count in rows.items()
            if count < min(options[name].cost.max_rows, left[name] * options[name].revisit_s)
            and time_s + options[name].cost.beta_s <= slice_budget_s(group, options[name].revisit_s)
        ]
        if not growing:
            return rows
        name = min(growing, key=lambda name: rows[name] / left[name])
        rows[name] += 1
        time_s += options[name].cost.beta_s


def _nothing(problem: Problem) -> Allocation:
    """Pinned variants stand by where they fit."""
    problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    return with_pinned(problem, assemble(problem, (), {}))
