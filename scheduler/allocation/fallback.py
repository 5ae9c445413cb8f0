"""An allocation that breaks no rule, whatever a strategy answers.

So there is a plan as long as one can be made. Tried in order: the strategy's answer; its answer without the plan in
force, which may ask for what is not possible any more; a greedy plan; pinned variants alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from workers import log

from . import nereus
from .outcome import outcome
from .pins import with_pinned
from .problem import Allocation, Problem, Strategy
from .reasons import explained
from .verification import check, violations

logger = log.get("fallback")

#: Number of broken rules that a refusal quotes.
QUOTED = 5


class NoAllocation(Exception):
    """The message has the rules that the last allocation tried breaks."""


def verified(problem: Problem, strategy: Strategy) -> Allocation:
    """Return the first allocation tried that breaks no rule, with reasons.

    Where that is not the strategy's own answer, ``refused`` and the first reason say why.

    Raises:
        UnusableProblem: the problem itself has faults.
        NoAllocation: every allocation breaks a rule.
    """
    check(problem)
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
    """Return the start of `nereus`, which regards no plan in force."""
    problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    return replace(nereus.start(problem), status="heuristic")


def _nothing(problem: Problem) -> Allocation:
    problem = replace(problem, variants=tuple(v for v in problem.variants if not v.excluded))
    return with_pinned(problem, outcome(problem, ()))[0]
