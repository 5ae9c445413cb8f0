"""There is a plan as long as one can be made, whatever a strategy answers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation.fallback import greedy, verified
from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Placement, Problem
from scheduler.allocation.verification import UnusableProblem, violations
from scheduler.stacks.strategies import get

from .worlds import changed, line, problems, variant

PROBLEM = Problem(
    (DeviceResources("d0", "cpu", available=0.95),),
    tuple(ApplicationDemand(q, 0.2, 20.0) for q in "ab"),
    tuple(variant(f"{q}-good", q, 100, cpu=line(4, 4)) for q in "ab"),
)


def too_much(problem: Problem) -> Allocation:
    """The answer of a strategy with a fault: shares beyond what is available."""
    allocation = get("nereus")(problem)
    return replace(allocation, placements=tuple(replace(p, time_share=0.6) for p in allocation.placements))


def test_a_good_answer_is_used_as_it_is():
    allocation = verified(PROBLEM, get("nereus"))
    assert not allocation.refused
    assert allocation.placements == get("nereus")(PROBLEM).placements


def test_an_answer_that_only_the_plan_in_force_spoils_is_made_afresh():
    previous = get("nereus")(PROBLEM)

    def spoilt(problem: Problem) -> Allocation:
        return get("nereus")(problem) if problem.previous is None else too_much(problem)

    allocation = verified(replace(PROBLEM, previous=previous), spoilt)
    assert "time shares add up to 1.2" in allocation.refused
    assert allocation.status == "optimal"
    assert allocation.reasons[0].startswith("The strategy's allocation was refused")
    assert "without regard to the plan in force" in allocation.reasons[0]


def raising(problem: Problem) -> Allocation:
    raise ZeroDivisionError("a fault in the solver")


def unknown(problem: Problem) -> Allocation:
    return Allocation((Placement("nowhere", "nothing", 1.0, 1, 0.1),), {}, {}, 0.0)


@pytest.mark.parametrize(
    ("strategy", "fault"), [(too_much, "time shares"), (raising, "a fault in the solver"), (unknown, "nowhere")]
)
def test_a_strategy_that_always_fails_leaves_the_greedy_plan(strategy, fault):
    allocation = verified(PROBLEM, strategy)
    assert fault in allocation.refused and "the greedy one" in allocation.reasons[0]
    assert violations(PROBLEM, allocation) == []
    assert sum(allocation.served.values()) == pytest.approx(40.0)


def test_a_problem_with_faults_is_not_planned_for():
    with pytest.raises(UnusableProblem, match="available"):
        verified(replace(PROBLEM, devices=(DeviceResources("d0", "cpu", available=2.0),)), get("nereus"))


@given(st.data())
def test_the_greedy_plan_keeps_every_rule(data):
    problem = data.draw(changed(data.draw(problems())))
    assert violations(problem, greedy(problem)) == []
