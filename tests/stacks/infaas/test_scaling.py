"""INFaaS with its own objective, SM+ and Clipper+: costs, loading, and the wait before scaling down."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.verification import violations
from scheduler.simulation.controller import Controller
from scheduler.stacks.dedicated import DedicatedChoices
from scheduler.stacks.infaas.cost import LOAD_WEIGHT, InstanceOptions, adding, asked
from scheduler.stacks.strategies import get
from tests.allocation.worlds import line, slow_to_load, variant
from tests.examples import examples
from tests.simulation.worlds import model, world
from workers.dispatch.published.devices import SLACK

from ..worlds import again, hosts, in_force

pytestmark = pytest.mark.wide

SCALING = ("infaas-ilp", "infaas-greedy", "sm+")
#: rows/s alone on a device: "slow" 50 on a CPU; "fast" 100 on a CPU, 400 on a GPU
SLOW = variant("slow", "a", 100, cpu=line(0, 20))
FAST = variant("fast", "a", 80, cpu=line(0, 10), gpu=line(0, 2.5))


def cluster(demand: float, cpus: int = 4, gpus: int = 1, gpu_cost: float = 10.0, variants=(SLOW, FAST)) -> Problem:
    devices = [DeviceResources(f"c{i}", "cpu") for i in range(cpus)]
    devices += [DeviceResources(f"g{i}", "gpu", cost=gpu_cost) for i in range(gpus)]
    return Problem(tuple(devices), (ApplicationDemand("a", 0.2, demand),), tuple(variants), time_limit_s=600.0)


def cost(problem: Problem, allocation: Allocation) -> float:
    """The cost of adding all of the allocation's instances."""
    choices = DedicatedChoices(problem)
    return sum(adding(one) for one in choices.residents(allocation.placements).values())


@pytest.mark.parametrize("name", ["infaas-ilp", "infaas-greedy"])
@pytest.mark.parametrize(
    ("demand", "chosen"),
    [
        # Among equally cheap instances the accurate one; then the cheapest that has 5% to spare.
        (47.0, ["slow"]),
        (48.0, ["fast"]),
        (190.0, ["fast", "fast"]),
        (370.0, ["fast"] * 4),
    ],
)
def test_the_cheapest_instances_serve_the_load_with_headroom(name, demand, chosen):
    problem = cluster(demand)
    found = get(name)(problem)
    assert sorted(hosts(found).values()) == chosen
    assert not any(device.startswith("g") for device in hosts(found))
    assert found.left_out == {"a": 0.0}


@pytest.mark.parametrize("name", ["infaas-ilp", "infaas-greedy"])
def test_one_dear_device_is_upgraded_to_where_it_is_cheaper_than_many(name):
    assert set(hosts(get(name)(cluster(370.0, gpu_cost=3.0)))) == {"g0"}


@pytest.mark.parametrize("name", SCALING)
def test_it_serves_what_it_can_where_devices_are_too_few(name):
    problem = cluster(1000.0)
    found = get(name)(problem)
    assert found.left_out["a"] == pytest.approx(1000.0 - 4 * 100 - 400)
    assert get(name)(replace(problem, devices=())).placements == ()


def test_loading_counts_so_that_what_runs_is_kept_where_it_saves_less():
    slow_loads = [replace(FAST, profiles={k: replace(p, load_s=60.0) for k, p in FAST.profiles.items()})]
    dear = cluster(90.0, gpu_cost=1.2, variants=slow_loads)
    on_gpu = get("infaas-ilp")(replace(dear, devices=dear.devices[-1:]))
    assert set(hosts(on_gpu)) == {"g0"}
    # A CPU would save 0.2 a second and cost 60 * lambda to load.
    assert 60 * LOAD_WEIGHT > 0.2
    assert set(hosts(again("infaas-ilp", dear, on_gpu))) == {"g0"}
    quick = cluster(90.0, gpu_cost=1.2, variants=[FAST])
    assert set(hosts(again("infaas-ilp", quick, on_gpu))) == {"c0"}


@pytest.mark.parametrize("name", SCALING)
def test_instances_that_are_not_needed_stay_as_long_as_they_took_to_load(name):
    problem = slow_to_load(cluster(190.0, gpus=0, variants=[FAST]), 3.0)
    busy = get(name)(problem)
    assert len(hosts(busy)) == 2

    def at(seconds: float, demand: float, before: Allocation) -> Allocation:
        following = replace(in_force(problem, before, a=demand), at_s=seconds)
        found = get(name)(following)
        assert violations(following, found) == []
        return found

    calm = at(10.0, 20.0, busy)
    assert len(hosts(calm)) == 2 and sorted(p.rate for p in calm.placements)[0] == 0
    assert list(calm.surplus_since.values()) == [10.0]
    # Load that comes back finds it, and the wait begins anew.
    back = at(11.0, 190.0, calm)
    assert (back.moves, back.surplus_since) == (0, {})
    still = at(12.9, 20.0, calm)
    assert list(still.surplus_since.values()) == [10.0]
    assert len(hosts(at(13.0, 20.0, still))) == 1
    # The clock began anew with the box.
    assert len(hosts(at(1.0, 20.0, still))) == 2


def test_infaas_accuracy_waits_too():
    problem = slow_to_load(cluster(120.0, cpus=2, gpus=0), 3.0)
    busy = get("infaas-accuracy")(problem)
    assert sorted(hosts(busy).values()) == ["fast", "slow"]
    calm = replace(in_force(problem, busy, a=20.0), at_s=10.0)
    waiting = get("infaas-accuracy")(calm)
    assert {p.variant: p.rate for p in waiting.placements} == {"slow": 20.0, "fast": 0.0}
    later = replace(in_force(problem, waiting, a=20.0), at_s=13.0)
    assert list(hosts(get("infaas-accuracy")(later)).values()) == ["slow"]


def test_a_waiting_instance_yields_its_device_to_load():
    other = variant("b1", "b", 100, cpu=line(0, 10))
    problem = slow_to_load(cluster(190.0, cpus=2, gpus=0, variants=[FAST, other]), 60.0)
    problem = replace(problem, applications=(*problem.applications, ApplicationDemand("b", 0.2, 0.0)))
    for name in SCALING:
        busy = get(name)(problem)
        assert sorted(hosts(busy).values()) == ["fast", "fast"]
        assert sorted(hosts(again(name, problem, busy, a=20.0, b=20.0)).values()) == ["b1", "fast"]


def test_sm_plus_and_clipper_plus_keep_to_one_variant_which_a_pin_chooses():
    for name in ("sm+", "clipper+"):
        assert set(hosts(get(name)(cluster(20.0))).values()) == {"fast"}
        pinned = cluster(20.0, gpus=0, variants=(replace(SLOW, pinned=True), FAST))
        assert set(hosts(get(name)(pinned)).values()) == {"slow"}
    assert len(hosts(get("sm+")(cluster(20.0)))) == 1
    assert len(hosts(get("clipper+")(cluster(20.0)))) == 5


def best_of_all(problem: Problem) -> float | None:
    """The least cost of any counts that serve the asked capacity; None: none do."""
    some = InstanceOptions(problem, DedicatedChoices(problem))
    options = list(some.options.items())
    least = None
    for counts in product(*(range(len(some.groups[g]) + 1) for (g, _), _ in options)):
        taken: dict[int, int] = {}
        capacity = {a.id: 0.0 for a in problem.applications}
        total = 0.0
        for ((g, _), one), count in zip(options, counts, strict=True):
            taken[g] = taken.get(g, 0) + count
            capacity[one.variant.application] += count * one.capacity
            total += adding(one, count)
        if all(n <= len(some.groups[g]) for g, n in taken.items()) and all(
            capacity[a.id] >= asked(a.demand) for a in problem.applications
        ):
            least = total if least is None else min(least, total)
    return least


@examples(5, suppress_health_check=list(HealthCheck))
@given(
    demand=st.floats(1, 900),
    cpus=st.integers(1, 3),
    gpus=st.integers(0, 2),
    gpu_cost=st.sampled_from([0.5, 1.0, 3.0, 10.0]),
    load_s=st.sampled_from([0.0, 10.0]),
)
def test_the_ilp_costs_the_least_of_all_counts_and_the_greedy_heuristic_no_less(demand, cpus, gpus, gpu_cost, load_s):
    problem = slow_to_load(cluster(demand, cpus, gpus, gpu_cost), load_s)
    least = best_of_all(problem)
    exact = get("infaas-ilp")(problem)
    if least is None:
        assert sum(p.max_batch for p in exact.placements) > 0
        return
    assert cost(problem, exact) <= least * 1.001
    choices = DedicatedChoices(problem)
    capacity = sum(one.capacity for one in choices.residents(exact.placements).values())
    assert capacity >= demand * SLACK * (1 - 1e-5)
    greedy = get("infaas-greedy")(problem)
    served = sum(one.capacity for one in choices.residents(greedy.placements).values())
    if served >= asked(demand):
        assert cost(problem, greedy) >= least * (1 - 1e-9)


def test_static_stacks_are_placed_for_the_mix_of_the_whole_trace():
    """Nine in ten queries are q's: it has three of the four devices, which it would not at equal rates."""
    models = [model(name, "only", 100, cpu={1: 40}) for name in ("p", "q")]
    arrivals = [(20.0 * i, "p" if i % 10 == 0 else "q") for i in range(300)]
    calm = world(models, arrivals, ["cpu"] * 4)
    for name in ("clipper-ht", "sommelier", "clipper+", "proteus-wo-mp"):
        first = Controller(calm, name).plan(0.0, {device: () for device, _ in calm.devices})
        placed = [p.variant for p in first.allocation.placements]
        assert sorted(placed) == ["p/only", "q/only", "q/only", "q/only"], name
