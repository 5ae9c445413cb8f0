"""Plans by Eq. 1 of InfAdapter: as good as enumeration, within the budget, with quotas that add up."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation.problem import CostWeights, DeviceResources, Problem
from scheduler.allocation.verification import violations
from scheduler.stacks import strategies
from scheduler.stacks.infadapter import weighing
from scheduler.stacks.infadapter.capacity_line import fitted
from tests.examples import examples
from tests.stacks.infadapter.worlds import problem, variant

# Files and sockets that other tests of the process left open may be collected during these.
pytestmark = [
    pytest.mark.wide,
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
QUIET = examples(20)
LINE = ((1, 3.0), (2, 7.0), (4, 15.5), (8, 31.0))


def best_of_all(asked: Problem, single: bool) -> tuple[float, float]:
    """(served items/s, Eq. 1) of the best of all configurations of one-core devices."""
    counts = range(len(asked.devices) + 1)
    best = (-1.0, -1e9)
    for cores in product(counts, repeat=len(asked.variants)):
        if sum(cores) > min(len(asked.devices), asked.costs.budget or len(asked.devices)):
            continue
        served, value = 0.0, -asked.costs.core * sum(cores)
        for application in asked.applications:
            mine = [(v, n) for v, n in zip(asked.variants, cores, strict=True) if v.application == application.id and n]
            if single and len(mine) > 1:
                break
            left, loads = application.demand, [0.0]
            for v, n in sorted(mine, key=lambda one: -one[0].accuracy):
                profile = v.profiles["core"]
                capacity = n / profile.points[0][1]
                if "core" in v.capacities:
                    capacity = min(capacity, fitted(v.capacities["core"]).at(n))
                rate = min(left, capacity)
                left -= rate
                part = rate / application.demand
                value += asked.costs.accuracy * application.weight * part * v.accuracy
                before = [p for p in asked.previous.placements if p.variant == v.id] if asked.previous else []
                loads.append(profile.load_s if n > len(before) else 0.0)
            served += application.demand - left
            value -= asked.costs.load_s * max(loads)
        else:
            best = max(best, (round(served, 4), value))
    return best


@st.composite
def problems(draw):
    names = draw(st.sampled_from([("a",), ("a", "b")]))
    variants = []
    for application in names:
        for i in range(draw(st.integers(1, 2 if len(names) > 1 else 3))):
            numbers = (
                float(draw(st.integers(50, 100))),
                draw(st.sampled_from([3.0, 4.5, 8.0, 20.0])),
                draw(st.sampled_from([0.0, 0.5, 2.0])),
            )
            line = LINE if draw(st.booleans()) and numbers[1] == 4.5 else ()
            variants.append(variant(f"v{i}", application, line, numbers))
    costs = CostWeights(
        accuracy=1.0,
        core=draw(st.sampled_from([0.0, 0.05, 0.4, 3.0])),
        load_s=draw(st.sampled_from([0.0, 0.35, 5.0])),
        budget=draw(st.sampled_from([None, 1, 3])),
    )
    demands = {name: float(draw(st.integers(1, 40))) for name in names}
    return problem(demands, draw(st.integers(1, 5)), variants=variants, costs=costs)


@QUIET
@given(problems(), st.sampled_from([("infadapter", False), ("ms+", True)]), st.integers(1, 40))
def test_no_configuration_is_better(asked, named, later):
    name, single = named
    plan = strategies.get(name)(asked)
    previous = plan
    for again in (False, True):
        if again:
            applications = tuple(type(a)(a.id, a.slo_s, float(later), a.weight) for a in asked.applications)
            asked = Problem(asked.devices, applications, asked.variants, costs=asked.costs, previous=previous)
            plan = strategies.get(name)(asked)
        served, value = best_of_all(asked, single)
        assert plan.status == "optimal"
        assert sum(plan.served.values()) == pytest.approx(served, abs=1e-2)
        # Where demand is left out, the solver may give up a millionth of what is served.
        assert plan.objective == pytest.approx(value, abs=1e-2)


@QUIET
@given(problems(), st.sampled_from(["infadapter", "ms+", "vpa+", "vpa+-middle", "vpa+-fast"]))
def test_plans_keep_the_budget_and_quotas_add_up(asked, name):
    plan = strategies.get(name)(asked)
    assert not violations(asked, plan)
    cores = {device.id: device.cores for device in asked.devices}
    used = sum(cores[p.device] for p in plan.placements)
    assert used <= min(sum(cores.values()), asked.costs.budget or sum(cores.values()))
    rate_of = {v.id: 1 / v.profiles["core"].points[0][1] for v in asked.variants}
    for application in asked.applications:
        mine = [p for p in plan.placements if p.variant.startswith(f"{application.id}-")]
        capacity = sum(rate_of[p.variant] for p in mine)
        assert sum(p.rate for p in mine) == pytest.approx(plan.served[application.id], abs=1e-6)
        assert plan.served[application.id] <= min(application.demand, capacity) * (1 + 1e-6) + 1e-9
        if name != "infadapter":
            assert len({p.variant for p in mine}) <= 1
    assert all(p.max_batch == 1 for p in plan.placements)


def test_unlike_devices_count_by_their_cores():
    variants = [variant(name, kinds={"core": 1.0, "four": 4.0}) for name in ("fast", "middle")]
    asked = problem({"a": 30.0}, 2, variants=variants)
    asked = Problem(
        (*asked.devices, DeviceResources("big", "four", cores=4)),
        asked.applications,
        asked.variants,
        costs=CostWeights(core=0.05, load_s=0.0, budget=5),
    )
    plan = strategies.get("infadapter")(asked)
    # 40 items/s at 76 on the four cores; with the fifth one they would serve no more accurately.
    assert [(p.device, p.variant) for p in plan.placements] == [("big", "a-middle")]
    assert plan.objective == pytest.approx(76 - 0.05 * 4)


def test_a_search_that_ends_by_its_nodes_repeats(monkeypatch):
    numbers = random.Random(3)
    names = [f"a{i}" for i in range(6)]
    variants = [
        variant(
            f"v{i}", name, numbers=(float(numbers.randint(50, 100)), numbers.uniform(3, 20), numbers.choice([0.5, 2]))
        )
        for name in names
        for i in range(5)
    ]
    costs = CostWeights(accuracy=1.0, core=0.37, load_s=0.9, budget=25)
    asked = problem({name: numbers.uniform(5, 60) for name in names}, 30, variants=variants, costs=costs)
    monkeypatch.setattr(weighing, "NODES", 1)
    first, second = (strategies.get("infadapter")(replace(asked, time_limit_s=1e6)) for _ in range(2))
    assert first.status == "feasible" and not first.cut_short and not violations(asked, first)
    assert replace(first, solve_s=0.0) == replace(second, solve_s=0.0)
