"""An allocation that breaks no rule, whatever a strategy answers.

So there is a plan as long as one can be made. Tried in order: the strategy's answer; its answer without the plan in
force, which may ask for what is not possible any more; the greedy start alone; pinned variants alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from workers import log

from .greedy_start import greedy_start
from .groups import singles
from .pins import with_pinned
from .problem import Allocation, Problem
from .reasons import explained
from .residents import assemble
from .sharing_model import choices
from .solver import Budget
from .strategies import Strategy, UnusableProblem
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
    """Return the allocation of the greedy start alone.

    It uses no solver, and does not regard the plan in force. Pinned variants stand by where they fit.
    """
    problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    if not any(a.demand > 0 for a in problem.applications):
        return _nothing(problem)
    offered = choices(problem, singles(problem.devices))
    residents = greedy_start(problem, offered, Budget(problem.time_limit_s))
    left = {a.id: a.demand for a in problem.applications}
    rates: dict[str, float] = {}
    for resident in sorted(residents, key=lambda r: (-r.variant.accuracy, r.variant.id)):
        rate = min(resident.capacity, left[resident.variant.application])
        left[resident.variant.application] -= rate
        rates[resident.variant.id] = rates.get(resident.variant.id, 0.0) + rate
    return replace(with_pinned(problem, assemble(problem, residents, rates)), status="heuristic")


def _nothing(problem: Problem) -> Allocation:
    """Pinned variants stand by where they fit."""
    problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    return with_pinned(problem, assemble(problem, (), {}))
