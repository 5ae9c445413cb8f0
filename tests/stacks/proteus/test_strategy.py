"""Plans by ``proteus``: dedicated devices, as good as enumeration in what is served, accuracy and loads."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given

from scheduler.allocation.problem import ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.verification import violations
from scheduler.stacks.proteus import strategy as proteus
from tests.allocation.worlds import line, problems, published_or_skip, variant, with_loaded
from tests.examples import examples


def enumerated(problem: Problem) -> tuple[float, float]:
    """(share of weighted demand served, objective) of the best of all assignments of variants to devices."""
    weighted = sum(a.weight * a.demand for a in problem.applications)
    usable = [d for d in problem.devices if d.available > 0 and d.max_resident != 0]
    best = (0.0, -1.0)
    for hosted in product([None, *problem.variants], repeat=len(usable)):
        capacity: dict[str, dict[float, float]] = {}
        possible, loads = True, 0
        for device, m in zip(usable, hosted, strict=True):
            if m is None:
                continue
            profile = m.profiles.get(device.type)
            slo_s = next(a.slo_s for a in problem.applications if a.id == m.application)
            rates = [b / s for b, s in profile.points if s <= slo_s / 2] if profile else []
            fits = profile is not None and (device.memory_bytes is None or profile.memory_bytes <= device.memory_bytes)
            if not rates or not fits:
                possible = False
                break
            mine = capacity.setdefault(m.application, {})
            mine[m.accuracy] = mine.get(m.accuracy, 0.0) + max(rates) * device.available
            loads += m.id not in device.loaded
        if not possible:
            continue
        served = accuracy = 0.0
        for a in problem.applications:
            left = a.demand
            for value, rate in sorted(capacity.get(a.id, {}).items(), reverse=True):
                served += a.weight * min(left, rate) / weighted
                accuracy += a.weight * min(left, rate) / weighted * value
                left -= min(left, rate)
        best = max(best, (round(served, 7), accuracy - proteus.PRICE_OF_ALL_LOADS / max(len(usable), 1) * loads))
    return best


@given(problems(devices=3, applications=3, variants=2))
def test_nothing_better_can_be_found_by_trying_everything(problem):
    allocation = proteus.solve(problem)
    assert violations(problem, allocation) == []
    weighted = sum(a.weight * a.demand for a in problem.applications)
    if weighted == 0:
        assert allocation.placements == ()
        return
    served, objective = enumerated(problem)
    got = sum(a.weight * allocation.served[a.id] for a in problem.applications) / weighted
    assert got == pytest.approx(served, abs=1e-5)
    if served > 0:
        assert allocation.objective == pytest.approx(objective, abs=2e-3)
        assert allocation.gap == 0 and allocation.status == "optimal"


def test_accuracy_is_given_up_only_as_far_as_the_demand_asks():
    def at(demand):
        problem = Problem(
            (DeviceResources("d0", "cpu"), DeviceResources("d1", "cpu")),
            (ApplicationDemand("a", 0.2, demand),),
            (variant("good", "a", 100, cpu=line(0, 20)), variant("poor", "a", 60, cpu=line(0, 10))),
        )
        return proteus.solve(problem).accuracy

    assert at(100) == pytest.approx(100)
    assert at(125) == pytest.approx((50 * 100 + 75 * 60) / 125, abs=0.01)
    assert at(200) == pytest.approx(60)


def test_a_spare_device_shares_the_busiest_variants_work():
    problem = Problem(
        tuple(DeviceResources(f"d{i}", "cpu") for i in range(3)),
        (ApplicationDemand("a", 0.2, 90.0), ApplicationDemand("b", 0.2, 10.0)),
        (variant("ma", "a", 100, cpu=line(0, 10)), variant("mb", "b", 100, cpu=line(0, 10))),
    )
    allocation = proteus.solve(problem)
    assert sorted((p.variant, round(p.rate, 6)) for p in allocation.placements) == [("ma", 45), ("ma", 45), ("mb", 10)]


@examples(12)
@given(problems(devices=4, applications=3, variants=2))
def test_a_plan_that_is_live_stays(problem):
    live = with_loaded(problem, proteus.solve(problem))
    settled = with_loaded(live, proteus.solve(live))
    again = proteus.solve(settled)
    assert again.moves == 0


def test_equal_devices_keep_what_they_have():
    devices = tuple(DeviceResources(f"d{i}", "cpu", loaded=frozenset({"mb" if i < 2 else "ma"})) for i in range(4))
    problem = Problem(
        devices,
        (ApplicationDemand("a", 0.2, 150.0), ApplicationDemand("b", 0.2, 150.0)),
        (variant("ma", "a", 100, cpu=line(0, 10)), variant("mb", "b", 100, cpu=line(0, 10))),
    )
    allocation = proteus.solve(problem)
    assert allocation.moves == 0
    assert {p.device: p.variant for p in allocation.placements} == {"d0": "mb", "d1": "mb", "d2": "ma", "d3": "ma"}


def test_one_worn_device_among_equals_costs_one_load_at_most():
    problem = Problem(
        tuple(DeviceResources(f"d{i}", "cpu", loaded=frozenset({"m"}) if i else frozenset()) for i in range(4)),
        (ApplicationDemand("a", 0.2, 350.0),),
        (variant("m", "a", 100, cpu=line(0, 10)),),
    )
    assert proteus.solve(problem).moves == 1
    assert proteus.solve(replace(problem, applications=(ApplicationDemand("a", 0.2, 290.0),))).served["a"] == 290.0


@pytest.mark.parametrize("total", [100, 400, 800, 1200, 2000])
def test_the_published_world_is_solved_with_certainty(total):
    # Within seconds; a busy machine is given minutes.
    problem = replace(published_or_skip(total), time_limit_s=300.0)
    allocation = proteus.solve(problem)
    assert violations(problem, allocation) == []
    assert allocation.status == "optimal" and allocation.gap == 0
    assert sum(allocation.left_out.values()) == 0
    assert allocation.accuracy > 96
