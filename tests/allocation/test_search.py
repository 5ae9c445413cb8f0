"""Plans of the search: bounded truly, repeatable, and by the rules."""

import math
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from scheduler.allocation import contents, nereus
from scheduler.allocation.columns import Program
from scheduler.allocation.contents import ROUNDING, ContentSearch, ContentSearches, fits
from scheduler.allocation.device_counts import DeviceCounts
from scheduler.allocation.group_options import SERVED, GroupOptions, revisit_periods
from scheduler.allocation.groups import grouped
from scheduler.allocation.problem import CERTIFIED, ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.solver import Budget, watched
from scheduler.allocation.verification import violations
from tests.examples import examples

from .worlds import line, problems, slow_to_load, variant, with_loaded

SLOW = dict(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def options_of(problem: Problem) -> GroupOptions:
    applications = [a for a in problem.applications if a.demand > 0]
    return GroupOptions(grouped(problem.devices), applications, problem.variants)


def usable(problem: Problem) -> GroupOptions:
    options = options_of(problem)
    assume(options.groups and options.applications)
    assume(nereus.relaxed(problem) is not None)
    return options


def searched(problem: Problem, options: GroupOptions, enough: float = math.inf, gap: float = 1e-4) -> nereus.Search:
    search = nereus.Search(options, nereus.relaxed(problem), Budget(math.inf), gap)
    search.run(enough)
    return search


def crowded(applications: int, devices: int, demand: float = 8.0) -> Problem:
    """More applications than devices: whole devices for each are too few."""
    return Problem(
        tuple(DeviceResources(f"d{i}", "cpu") for i in range(devices)),
        tuple(ApplicationDemand(f"q{i}", 0.3, demand * (1 + i % 3)) for i in range(applications)),
        tuple(
            variant(f"q{i}{name}", f"q{i}", accuracy, cpu=line(3 * cost, 5 * cost))
            for i in range(applications)
            for name, accuracy, cost in (("s", 85, 0.5), ("m", 94, 1.2), ("l", 100, 3.0))
        ),
    )


def all_contents(search: ContentSearch, g: int, revisit_s: float, options: GroupOptions):
    by_owner: dict[int, list[int]] = {}
    for j, q in enumerate(search.table.owner.tolist()):
        by_owner.setdefault(q, []).append(j)
    for chosen in product(*[(None, *items) for items in by_owner.values()]):
        content = tuple(j for j in chosen if j is not None)
        if fits(search.device(content), options.groups[g]):
            yield content


def best_by_enumeration(options: GroupOptions, periods: list[float]) -> float:
    """The highest value of any counts."""
    uses: list[list[object]] = []
    for g, group in enumerate(options.groups):
        mine: list[object] = [None, *range(len(options.applications))]
        for revisit_s in periods:
            table = options.slices(g, revisit_s)
            if table.slices and group.one.max_resident != 1:
                search = ContentSearch(g, revisit_s, table, group.one.max_resident)
                mine += [search.device(c) for c in all_contents(search, g, revisit_s, options) if c]
        uses.append(list(combinations_with_replacement(mine, len(group))))
    best = 0.0
    for chosen in product(*uses):
        counts = DeviceCounts(options)
        dedicated = np.zeros_like(counts.dedicated)
        shared = []
        for g, some in enumerate(chosen):
            for use in some:
                if isinstance(use, int):
                    dedicated[use, g] += 1
                elif use is not None:
                    shared.append(use)
        counts.set(dedicated, shared)
        best = max(best, counts.value)
    return best


@pytest.mark.parametrize("resident", [{}, {"resident": (1,)}], ids=["shared", "nothing shared"])
@examples(6, **SLOW)
@given(st.data())
def test_the_bound_is_at_least_the_best_plan_found_by_enumeration(resident, data):
    problem = data.draw(problems(devices=2, applications=2, variants=2, **resident))
    options = usable(problem)
    periods = revisit_periods(options.applications)[:2]
    cells = [options.slices(g, p).earns.shape[0] for g in range(len(options.groups)) for p in periods]
    assume(max(cells, default=0) <= 6)
    program = Program(options, periods)
    bound = program.bound(-math.inf, Budget(math.inf)) * program.total
    best = best_by_enumeration(options, periods)
    slack = 1e-5 * max(best, 1.0)
    assert bound >= best - slack
    found = searched(problem, options)
    assert found.best.value >= 0 and found.bound >= best_by_enumeration(options, periods) - slack


@examples(10, **SLOW)
@given(problems(devices=3, applications=3, variants=2))
def test_a_search_is_never_worse_than_its_start_and_keeps_the_limits_of_devices(problem):
    options = usable(problem)
    begun, found = searched(problem, options, math.inf), searched(problem, options)
    assert found.best.value >= begun.best.value
    assert (found.best.free() >= 0).all()
    assert all(fits(device, options.groups[device.group]) for device in found.best.shared)
    assert found.bound >= found.best.value - 1e-5 * max(found.best.value, 1.0)


@examples(6, **SLOW)
@given(problems(devices=3, applications=3, variants=2), st.sampled_from((0.0, 2.0)))
def test_plans_keep_every_rule_and_repeat(problem, load_s):
    problem = slow_to_load(problem, load_s)
    plan = nereus.solve(problem)
    assert violations(problem, plan) == []
    assert nereus.solve(problem) == plan
    assert plan.method in ("milp", "search", "")


@examples(10, **SLOW)
@given(problems(devices=2, resident=(None, 2)), st.integers(0, 1000))
def test_the_best_content_is_that_of_an_enumeration(problem, seed):
    options = usable(problem)
    rng = np.random.default_rng(seed)
    for g, group in enumerate(options.groups):
        for revisit_s in revisit_periods(options.applications)[:2]:
            table = options.slices(g, revisit_s)
            if not 0 < len(table.slices) <= 12:
                continue
            search = ContentSearch(g, revisit_s, table, group.one.max_resident)
            searches = ContentSearches([search])
            gain = rng.uniform(0, 1, len(table.slices))
            every = [sum(gain[j] for j in c) for c in all_contents(search, g, revisit_s, options)]
            (best,) = searches.best(gain, np.zeros(1), [0])
            assert best.value == pytest.approx(max(every)) and best.bound >= max(every) - ROUNDING
            assert sum(gain[list(best.chosen)]) == pytest.approx(best.value)
            assert fits(search.device(best.chosen), options.groups[g])
            assert searches.best(gain, np.array([best.bound]), [0])[0].chosen == ()
            assert searches.fluid(gain)[0] >= max(every) - ROUNDING


@examples(10, **SLOW)
@given(problems(devices=3, resident=(None, 2, 3)), st.integers(0, 1000))
def test_searches_find_at_once_what_each_finds_alone(problem, seed):
    options = usable(problem)
    found = [
        ContentSearch(g, revisit_s, options.slices(g, revisit_s), group.one.max_resident)
        for g, group in enumerate(options.groups)
        for revisit_s in revisit_periods(options.applications)
        if options.slices(g, revisit_s).slices
    ]
    assume(len(found) > 1)
    rng = np.random.default_rng(seed)
    gains = [rng.uniform(-0.3, 1, len(search.slices)) for search in found]
    least = rng.uniform(0, 1, len(found))
    which = np.nonzero(rng.uniform(size=len(found)) < 0.7)[0]
    at_once = ContentSearches(found).best(np.concatenate(gains), least, which)
    for k, together in zip(which, at_once, strict=True):
        (alone,) = ContentSearches([found[k]]).best(gains[k], least[k : k + 1], [0])
        assert (together.value, together.bound) == pytest.approx((alone.value, alone.bound))
        assert sum(gains[k][list(together.chosen)]) == pytest.approx(together.value if together.chosen else 0.0)
    fluid = ContentSearches(found).fluid(np.concatenate(gains))
    alone = [ContentSearches([search]).fluid(mine)[0] for search, mine in zip(found, gains, strict=True)]
    assert fluid == pytest.approx(alone)


def test_what_a_narrow_beam_cuts_off_is_in_its_bound(monkeypatch):
    options = options_of(crowded(6, 1))
    periods = revisit_periods(options.applications)
    searches = ContentSearches(
        [ContentSearch(0, revisit_s, options.slices(0, revisit_s), None) for revisit_s in periods]
    )
    rng, missed = np.random.default_rng(1), 0
    for _ in range(10):
        gains, least, every = rng.uniform(0, 1, searches.ends[-1]), np.zeros(len(periods)), range(len(periods))
        exact = searches.best(gains, least, every)
        with monkeypatch.context() as narrow:
            narrow.setattr(contents, "WIDTH", 1)
            found = searches.best(gains, least, every)
        for best, one in zip(exact, found, strict=True):
            assert one.value <= best.value + ROUNDING and one.bound >= best.value - ROUNDING
            missed += one.value < best.value - 1e-3
    assert missed


def test_the_milp_serves_what_the_start_leaves_out_and_proves_it():
    problem = crowded(7, 3, 20.0)
    begun, plan = nereus.start(problem), nereus.solve(problem)
    assert violations(problem, plan) == []
    assert (sum(plan.served.values()), plan.accuracy) >= (sum(begun.served.values()), begun.accuracy)
    assert plan.method == "milp" and plan.gap <= CERTIFIED
    assert begun.method == "search"


def test_two_devices_get_a_proved_plan():
    problem = crowded(5, 2, 20.0)
    plan = nereus.solve(problem)
    assert violations(problem, plan) == []
    assert plan.gap <= CERTIFIED


def test_a_plan_that_gains_less_than_its_loads_cost_is_not_taken():
    problem = slow_to_load(crowded(7, 3), 20.0)
    first = nereus.solve(problem)
    later = replace(
        with_loaded(problem, first),
        previous=first,
        applications=tuple(replace(a, demand=a.demand * 0.98) for a in problem.applications),
    )
    assert nereus.solve(later).moves == 0


def test_a_floor_that_the_start_serves_stays_served():
    problem = crowded(6, 2, 30.0)
    floors = (0.0, 0.5, 0.0, 0.5, 0.0, 0.5)
    applications = tuple(replace(a, floor=f) for a, f in zip(problem.applications, floors, strict=True))
    problem = replace(problem, applications=applications)
    begun, plan = nereus.start(problem), nereus.solve(problem)
    assert violations(problem, plan) == []
    for a in applications:
        if begun.served[a.id] >= a.floor * a.demand:
            assert plan.served[a.id] >= a.floor * a.demand * (1 - 1e-5)


def test_a_model_that_would_be_too_large_has_fewer_revisit_periods():
    problem = crowded(60, 8)
    devices = tuple(replace(d, available=1 - i / 100) for i, d in enumerate(problem.devices))
    applications = tuple(replace(a, slo_s=0.3 + i % 4 / 10) for i, a in enumerate(problem.applications))
    options = options_of(replace(problem, devices=devices, applications=applications))
    periods = nereus.periods(options)
    assert 0 < len(periods) < len(revisit_periods(options.applications))
    assert periods[0] == revisit_periods(options.applications)[0]


def in_floors(options: GroupOptions, served: dict[str, float]) -> float:
    """Weighted items/s served within floors."""
    return sum(a.weight * min(served[a.id], a.floor * a.demand) for a in options.applications)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_plans_whose_floors_devices_cannot_carry_are_bounded_by_what_floors_lack(devices):
    problem = crowded(2 * devices, devices, 200.0)
    applications = tuple(replace(a, floor=0.8) for a in problem.applications)
    problem = replace(problem, applications=applications)
    begun, plan = nereus.start(problem), nereus.solve(problem)
    assert any(begun.served[a.id] < 0.8 * a.demand for a in applications)
    assert violations(problem, plan) == []
    options = options_of(problem)
    served = in_floors(options, plan.served)
    assert served >= in_floors(options, begun.served) * (1 - 1e-5)
    # The MILP is of plans that lack no more; divisible devices may lack less.
    most = nereus.relaxed(problem).floors
    assert plan.gap >= most / served - 1 - 1e-6
    assert plan.gap <= max(CERTIFIED, most / served - 1 + 1e-6)


@examples(10, **SLOW)
@given(problem=problems(devices=3, applications=3, variants=2), floors=st.lists(st.sampled_from((0.0, 0.5, 1.0))))
def test_no_plan_that_serves_as_much_of_floors_exceeds_the_bound(problem, floors):
    floors = floors + [0.0] * (len(problem.applications) - len(floors))
    applications = tuple(replace(a, floor=f) for a, f in zip(problem.applications, floors, strict=False))
    options = usable(replace(problem, applications=applications))
    program = Program(options, revisit_periods(options.applications))
    # The start serves nothing, so that every plan serves as much of floors.
    assert program.evaluated(DeviceCounts(options), start=True) is not None
    bound = program.bound(-math.inf, Budget(math.inf)) * program.total
    better = nereus.start(replace(problem, applications=applications))
    worth = sum(
        (SERVED + v.accuracy) * a.weight * p.rate
        for a in options.applications
        for p in better.placements
        for v in options.variants(a.id)
        if v.id == p.variant
    )
    assert worth <= bound * (1 + 1e-6)


def test_time_ends_a_search_with_the_start_and_a_bound():
    problem = crowded(9, 4)
    options = options_of(problem)
    search = nereus.Search(options, nereus.relaxed(problem), Budget(0.0), 1e-6)
    with watched() as watch:
        search.run(math.inf)
    assert watch.cut_short and np.isfinite(search.bound)
