"""Plans of InfAdapter and its baselines, each alone and from one plan to the next."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler.allocation.problem import ApplicationDemand, CostWeights
from scheduler.stacks import strategies
from tests.stacks.infadapter.worlds import problem

pytestmark = pytest.mark.wide


def cores(plan) -> dict[str, int]:
    return dict(Counter(p.variant.split("-")[1] for p in plan.placements))


def demand(asked, rate: float):
    return replace(asked, applications=(ApplicationDemand("a", 1.0, rate),))


def test_a_set_of_variants_is_more_accurate_than_the_best_single_one():
    asked = problem({"a": 40.0}, 8)
    many, one = (strategies.get(name)(asked) for name in ("infadapter", "ms+"))
    assert len(cores(many)) == 2
    assert len(cores(one)) == 1
    assert many.accuracy > one.accuracy and many.objective > one.objective
    assert many.left_out == one.left_out == {"a": 0.0}


def test_the_dearer_a_core_the_fewer_are_used():
    used, accuracy = [], []
    for price in (0.0125, 0.5, 1.0, 5.0):
        plan = strategies.get("infadapter")(problem({"a": 30.0}, 12, costs=CostWeights(core=price, load_s=0.0)))
        used.append(len(plan.placements))
        accuracy.append(plan.accuracy)
    assert used == sorted(used, reverse=True) and used[0] > used[-1] == 2
    assert accuracy == sorted(accuracy, reverse=True) and accuracy[-1] == 72


def test_dear_loads_keep_what_is_there():
    asked = problem({"a": 20.0}, 12, costs=CostWeights(core=0.05, load_s=0.0))
    first = strategies.get("infadapter")(asked)
    later = replace(demand(asked, 18.0), previous=first)
    cheap = strategies.get("infadapter")(later)
    dear = strategies.get("infadapter")(replace(later, costs=CostWeights(core=0.05, load_s=100.0)))
    kept = {(p.device, p.variant) for p in first.placements}
    assert {(p.device, p.variant) for p in dear.placements} <= kept
    assert dear.left_out == cheap.left_out == {"a": 0.0}


def test_new_ones_go_to_devices_that_nothing_uses():
    asked = problem({"a": 20.0}, 8, costs=CostWeights(core=0.05, load_s=0.0, budget=4))
    first = strategies.get("ms+")(asked)
    assert cores(first) == {"middle": 2}
    second = strategies.get("ms+")(replace(demand(asked, 70.0), previous=first))
    assert cores(second) == {"fast": 3}
    assert not {p.device for p in first.placements} & {p.device for p in second.placements}


@pytest.mark.parametrize(("name", "which"), [("vpa+", "best"), ("vpa+-middle", "middle"), ("vpa+-fast", "fast")])
def test_the_vertical_autoscaler_has_one_variant_and_grows_by_what_it_is_seen_to_use(name, which):
    asked = problem({"a": 4.0}, 40)
    first = strategies.get(name)(asked)
    assert cores(first).keys() == {which}
    used = [sum(cores(first).values())]
    plan = first
    for _ in range(12):
        plan = strategies.get(name)(replace(demand(asked, 90.0), previous=plan))
        used.append(sum(cores(plan).values()))
    assert used == sorted(used)
    # 15% a plan, and a whole core at least.
    assert all(after <= max(before + 1, 1.15 * before + 1) for before, after in pairwise(used))
    assert plan.left_out["a"] == pytest.approx(0, abs=1e-6)
    again = strategies.get(name)(replace(demand(asked, 4.0), previous=plan))
    assert sum(cores(again).values()) == used[0]
