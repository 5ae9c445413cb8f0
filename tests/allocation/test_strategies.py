"""The registry, what every strategy owes, and what operators read."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from pyscipopt import quicksum

from scheduler.allocation import nereus
from scheduler.allocation.problem import (
    Allocation,
    ApplicationDemand,
    DeviceResources,
    LatencyProfile,
    Placement,
    Problem,
)
from scheduler.allocation.reasons import reasons
from scheduler.allocation.solver import maximise, new_model, watched
from scheduler.allocation.verification import UnusableProblem, faults, violations
from scheduler.stacks.strategies import UnknownStrategy, get

from .worlds import line, problems, variant


@pytest.mark.parametrize(
    ("name", "method"),
    [("proteus", "milp"), ("infaas-ilp", "milp"), ("infaas-greedy", ""), ("infadapter", "milp"), ("ramsis", "")],
)
def test_a_plan_says_whether_scip_decided_it(name, method):
    problem = Problem(
        tuple(DeviceResources(f"d{i}", "cpu") for i in range(3)),
        (ApplicationDemand("a", 0.3, 20.0),),
        (variant("quick", "a", 80.0, cpu=line(1, 3)), variant("good", "a", 100.0, cpu=line(4, 12))),
    )
    assert get(name)(problem).method == method


@given(problem=problems())
def test_nereus_calls_optimal_what_is_within_the_gap_asked_for_and_nothing_else(problem):
    for asked in (0.0, 0.05):
        allocation = get("nereus")(replace(problem, gap=asked))
        if allocation.status != "empty":
            assert (allocation.status == "optimal") == (allocation.gap <= max(asked, nereus.GAP) + 1e-6)


def test_a_plan_tells_whether_time_ran_out_whatever_its_status():
    # More than the devices can serve takes two solves: a hundred times as long as they get here.
    applications = tuple(ApplicationDemand(f"q{i}", 0.3, 20.0) for i in range(40))
    variants = tuple(
        variant(f"{a.id}v{j}", a.id, 70.0 + 5 * j, cpu=line(5 + 7 * j, 2 + 3 * j))
        for a in applications
        for j in range(6)
    )
    problem = Problem(
        tuple(DeviceResources(f"d{i}", "cpu") for i in range(12)), applications, variants, time_limit_s=1e-6
    )
    assert get("proteus")(problem).cut_short
    # One application on two devices is soon searched.
    small = replace(problem, devices=problem.devices[:2], applications=applications[:1], variants=variants[:4])
    assert not get("proteus")(replace(small, time_limit_s=60.0)).cut_short


def test_a_search_that_its_time_limit_ends_says_so_to_whoever_watches():
    def search(rows: int, columns: int) -> None:
        """Split 50 numbers evenly by several measures at once, which takes a solver hours."""
        rng = random.Random(1)
        model = new_model()
        taken = [model.addVar(f"x{j}", vtype="B") for j in range(columns)]
        off = [model.addVar(f"s{i}", lb=0) for i in range(rows)]
        for i in range(rows):
            sizes = [rng.randrange(100) for _ in taken]
            half = sum(sizes) // 2
            total = quicksum(size * x for size, x in zip(sizes, taken, strict=True))
            model.addCons(total - half <= off[i])
            model.addCons(half - total <= off[i])
        maximise(model, -quicksum(off), 0.2 if columns > 10 else 60.0, 0.0)

    with watched() as outer:
        with watched() as hard:
            search(6, 50)
        with watched() as easy:
            search(1, 3)
    assert hard.cut_short and not easy.cut_short and not outer.cut_short


def test_an_unknown_strategy_is_answered_with_those_there_are():
    with pytest.raises(UnknownStrategy, match=r"'protheus' is not one of .*proteus"):
        get("protheus")


def good() -> Problem:
    return Problem(
        (DeviceResources("d", "cpu"),),
        (ApplicationDemand("a", 0.2, 10.0),),
        (variant("m", "a", 100, cpu=line(0, 10, memory=10)),),
    )


def device(**changes) -> dict:
    return {"devices": (DeviceResources("d", "cpu", **changes),)}


def application(slo_s: float = 0.2, demand: float = 10.0, **changes) -> dict:
    return {"applications": (ApplicationDemand("a", slo_s, demand, **changes),)}


def profiled(*points: tuple[int, float]) -> dict:
    return {"variants": (variant("m", "a", 9, cpu=LatencyProfile(points)),)}


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"devices": 2 * good().devices}, "devices[d].id: must be unique"),
        (device(available=1.5), "devices[d].available: must be at least 0 and at most 1"),
        (device(memory_bytes=-1), "devices[d].memory_bytes: must be at least 0"),
        (device(max_resident=-1), "devices[d].max_resident: must be at least 0"),
        (application(slo_s=0.0), "applications[a].slo_s: must be above 0"),
        (application(demand=-1.0), "applications[a].demand: must be at least 0"),
        (application(demand=float("nan")), "applications[a].demand: must be at least 0"),
        (application(weight=0.0), "applications[a].weight: must be above 0"),
        ({"applications": ()}, "variants[m].application: 'a' is not an application"),
        ({"variants": (variant("m", "a", -1, cpu=line(0, 1)),)}, "variants[m].accuracy: must be at least 0"),
        (profiled((2, 0.1), (1, 0.1)), "variants[m].profiles[cpu].points: batches must be at least 1 and ascend"),
        (profiled((1, 0.0)), "variants[m].profiles[cpu].points[1]: must be above 0"),
        ({"time_limit_s": 0.0}, "time_limit_s: must be above 0"),
        ({"milp_s": 0.0}, "milp_s: must be above 0"),
        ({"gap": -0.1}, "gap: must be at least 0"),
    ],
)
def test_an_unusable_problem_is_refused_naming_the_field(change, fragment):
    problem = replace(good(), **change)
    assert any(fragment in fault for fault in faults(problem))
    with pytest.raises(UnusableProblem) as refused:
        get("proteus")(problem)
    assert fragment in str(refused.value)


def test_the_checker_sees_what_is_broken():
    problem = replace(good(), devices=(DeviceResources("d", "cpu", memory_bytes=10, max_resident=1, available=0.9),))
    right = get("proteus")(problem)
    assert violations(problem, right) == []
    (placement,) = right.placements

    def broken(*placements: Placement, **changes) -> str:
        return " ".join(violations(problem, replace(right, placements=placements or right.placements, **changes)))

    assert "exceeds its capacity" in broken(replace(placement, rate=95.0), served={"a": 95.0})
    assert "rates add up to 5.0" in broken(replace(placement, rate=5.0))
    assert "do not add up to the demand" in broken(left_out={"a": 3.0})
    assert "exceeds half of the SLO" in broken(replace(placement, max_batch=12)) or "largest profiled batch" in broken(
        replace(placement, max_batch=12)
    )
    assert "time shares add up" in broken(replace(placement, time_share=0.95))
    assert "no such device" in broken(replace(placement, device="elsewhere"))
    twice = broken(replace(placement, rate=5.0), replace(placement, rate=5.0))
    assert "the limit is 10" in twice and "2 residents, the limit is 1" in twice and "m appears 2 times" in twice
    assert "exceed the SLO" in broken(replace(placement, max_batch=8), revisit_s={"d": 0.15})
    assert "the revisit period leaves" in broken(replace(placement, max_batch=8), revisit_s={"d": 0.08})


def test_the_checker_knows_whom_a_device_works_for():
    problem = Problem(
        (DeviceResources("d", "cpu"),),
        (ApplicationDemand("a", 0.2, 10.0), ApplicationDemand("b", 0.2, 10.0)),
        (
            variant("ma", "a", 100, cpu=line(0, 10)),
            variant("mb", "b", 100, cpu=line(0, 10)),
            variant("slow", "b", 100, cpu=line(0, 150, batches=(1, 2))),
            replace(variant("no", "b", 100, cpu=line(0, 10)), excluded=True),
        ),
    )
    mine = Placement("d", "ma", 10.0, 1, 0.1)
    right = Allocation((mine,), {"a": 10.0, "b": 0.0}, {"a": 0.0, "b": 10.0}, 100.0)
    assert violations(problem, right) == []

    def broken(*others: Placement, **changes) -> str:
        return " ".join(violations(problem, replace(right, placements=(mine, *others), **changes)))

    served = {"served": {"a": 10.0, "b": 5.0}, "left_out": {"a": 0.0, "b": 5.0}}
    assert "works for 2 applications and has no revisit period" in broken(Placement("d", "mb", 5.0, 1, 0.05), **served)
    assert broken(Placement("d", "slow", 0.0, 1, 0.0)) == ""
    assert "slow on d: stands by with a batch of 0.3 s" in broken(Placement("d", "slow", 0.0, 2, 0.0))
    assert "no on d: is excluded" in broken(Placement("d", "no", 0.0, 1, 0.0))


def with_large(ms: float, demand: float) -> dict:
    """A variant of which a row takes ``ms``, more accurate than the others."""
    return {"variants": (*good().variants, variant("big", "a", 120.0, cpu=line(0, ms))), **application(demand=demand)}


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"variants": ()}, "a: 10.0 of 10.0 items/s are left out: it has no variant to plan with."),
        ({"devices": ()}, "no device can run anything now."),
        (
            {"devices": (DeviceResources("d", "gpu"),)},
            "none of its 1 variants is profiled on the present device types.",
        ),
        (device(memory_bytes=5), "no device has the memory for any of its variants."),
        (application(slo_s=0.015), "its fastest batch takes 10 ms, and plans allow half of the 15 ms SLO."),
        (application(demand=150.0), "a: 50.0 of 150.0 items/s are left out: all devices are full."),
        (
            {"devices": (*good().devices, DeviceResources("e", "gpu"))},
            "e: idle, because no variant is profiled on its type",
        ),
        (with_large(200, 10.0), "a: big (120.00%) is not used: its fastest batch exceeds half of the 200 ms SLO."),
        (with_large(50, 60.0), "all 60.0 items/s with big (120.00%), which serves at most 20.0 items/s on one device."),
    ],
)
def test_reasons_explain_why(change, fragment):
    problem = replace(good(), **change)
    assert any(fragment in sentence for sentence in reasons(problem, get("proteus")(problem)))
