"""What every strategy, batch policy, router and stack owes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.allocation.reasons import explained
from scheduler.allocation.verification import violations
from scheduler.simulation import simulate
from scheduler.simulation.scenario import ControlSettings
from scheduler.simulation.stacks import ALL, POLICIES, ROUTERS, choose
from scheduler.stacks import strategies
from scheduler.stacks.registry import PAPERS
from tests.allocation.worlds import changed, problems, slow_to_load, with_loaded
from tests.examples import examples
from tests.published.driver import Decided, Query, Served
from tests.published.driver import simulate as served_by
from tests.published.strategies import arrivals, candidates
from tests.simulation.worlds import model, world
from workers.dispatch import bindings, stacks
from workers.dispatch.latency import LatencyModel
from workers.dispatch.published.policy import Candidate, QueueView

from .worlds import in_force

pytestmark = pytest.mark.wide

#: strategies that solve a decision process for each group of devices, which takes a second an example
SLOW = {name for paper in PAPERS.values() for name in paper.strategies if paper.policies}


# --- strategies ------------------------------------------------------------------------------------------------------


def with_examples(count: int, few: int, many: int):
    """Parametrize with every strategy and its examples: ``few`` of slow ones, ``many`` in the long form."""
    names = strategies.names()
    short = [pytest.param(name, few if name in SLOW else count, id=name) for name in names]
    long = [pytest.param(name, many, marks=pytest.mark.long, id=f"{name}-many") for name in names]
    return pytest.mark.parametrize(("name", "tries"), [*short, *long])


def tried(tries: int):
    return settings(max_examples=tries, deadline=None, suppress_health_check=list(HealthCheck))


@with_examples(5, few=2, many=100)
def test_a_strategy_keeps_every_rule_and_explains_itself(name, tries):
    @tried(tries)
    @given(problem=problems())
    def keeps(problem):
        allocation = explained(problem, strategies.get(name)(problem))
        assert violations(problem, allocation) == []
        for application in problem.applications:
            served, left_out = allocation.served[application.id], allocation.left_out[application.id]
            assert served + left_out == pytest.approx(application.demand, rel=1e-9)
        assert allocation.moves == sum(
            p.variant not in next(d.loaded for d in problem.devices if d.id == p.device) for p in allocation.placements
        )
        assert allocation.bound >= allocation.objective - 1e-9
        for application, missing in allocation.left_out.items():
            assert (missing > 0) == any(
                s.startswith(f"{application}: ") and "left out" in s for s in allocation.reasons
            )

    keeps()


@with_examples(4, few=2, many=100)
def test_a_strategy_keeps_every_rule_whatever_was_in_force(name, tries):
    """Whatever demand, latencies, limits and devices have become since."""

    @tried(tries)
    @given(data=st.data(), load_s=st.sampled_from((0.0, 2.0)))
    def keeps(data, load_s):
        problem = slow_to_load(data.draw(problems(devices=3)), load_s)
        allocation = strategies.get(name)(problem)
        later = data.draw(changed(with_loaded(problem, allocation)))
        allocation = strategies.get(name)(replace(later, previous=allocation))
        assert violations(later, allocation) == []
        demand = {a.id: data.draw(st.just(0.0) | st.floats(0.001, 300)) for a in problem.applications}
        gone = data.draw(st.sets(st.sampled_from([d.id for d in later.devices]))) if later.devices else set()
        later = replace(in_force(later, allocation, **demand), at_s=2.0)
        later = replace(later, devices=tuple(d for d in later.devices if d.id not in gone))
        assert violations(later, strategies.get(name)(later)) == []

    keeps()


@with_examples(3, few=1, many=100)
def test_identical_problems_get_identical_allocations(name, tries):
    @tried(tries)
    @given(problem=problems(devices=3, applications=4, variants=2))
    def repeats(problem):
        problem = replace(problem, time_limit_s=60.0)
        first, second = strategies.get(name)(problem), strategies.get(name)(problem)
        assert replace(first, solve_s=0.0) == replace(second, solve_s=0.0)

    repeats()


@pytest.mark.parametrize("name", strategies.names())
@examples(2)
@given(problem=problems(devices=3, applications=3))
def test_without_demand_or_devices_there_is_a_plan_and_what_is_excluded_runs_nowhere(name, problem):
    plan = strategies.get(name)
    idle = replace(problem, applications=tuple(replace(a, demand=0.0) for a in problem.applications))
    assert violations(idle, plan(idle)) == []
    empty = plan(replace(problem, devices=()))
    assert empty.status == "empty" and empty.left_out == {a.id: a.demand for a in problem.applications}
    variants = tuple(replace(v, excluded=i % 2 == 0) for i, v in enumerate(problem.variants))
    without = plan(replace(problem, variants=variants))
    assert not {p.variant for p in without.placements} & {v.id for v in variants if v.excluded}


# --- batch policies --------------------------------------------------------------------------------------------------

every_policy = pytest.mark.parametrize("name", POLICIES)
modes = st.sampled_from(["shed", "serve"])


def view(queries, offered: list[Candidate], when: float, late: str) -> QueueView:
    now = queries[0].arrived + when
    waiting = sorted((q for q in queries if q.arrived <= now), key=lambda q: (q.deadline, q.id))
    return QueueView(now, waiting, offered, late == "serve")


def hopeless(query, seen: QueueView) -> bool:
    return query.deadline < seen.now + seen.candidates[0].latency.seconds(query.rows)


@st.composite
def resident(draw) -> list[Candidate]:
    """Up to four resident variants of one application; the first is the planned one."""
    found = [draw(candidates()) for _ in range(draw(st.integers(2, 4)))]
    return [Candidate(i, 100.0 - 7 * i, c.latency, c.max_batch) for i, c in enumerate(found)]


@every_policy
@given(offered=resident(), queries=arrivals(most=15), when=st.floats(0, 0.5), late=modes)
def test_a_decision_between_variants_keeps_the_rules(name, offered, queries, when, late):
    given_view = view(queries, offered, when, late)
    decision = Decided.of(POLICIES[name]().decide(given_view))
    waiting = {q.id: q for q in given_view.queue}
    run, drop = set(decision.run), set(decision.drop)
    assert len(run) == len(decision.run) and len(drop) == len(decision.drop)
    assert run <= waiting.keys() and drop <= waiting.keys() and not run & drop
    assert not drop or late == "shed"
    if not run:
        assert decision.wait_until > given_view.now
        return
    chosen = next(c for c in offered if c.variant == decision.variant)
    assert sum(waiting[i].rows for i in run) <= chosen.max_batch or len(run) == 1
    if late == "shed":
        for i in run:
            alone = given_view.now + chosen.latency.seconds(waiting[i].rows)
            assert alone <= waiting[i].deadline, "a query was run that is bound to be late"
    assert Decided.of(POLICIES[name]().decide(view(queries, offered, when, late))) == decision


@every_policy
@examples(12)
@given(candidate=candidates(), queries=arrivals())
def test_nothing_hopeless_is_run_while_dropping_is_allowed(name, candidate, queries):
    def check(seen, decision):
        assert not any(hopeless(query, seen) for query in seen.queue if query.id in decision.run)

    served_by([Served(POLICIES[name](), candidate)], queries, check)


#: policies that look at no deadline of a batch: they learn from misses
REACTIVE = {"clipper", "by-load"}
#: policies that give viable queries up, or make late ones later, for a batch's sake
SACRIFICING = {"nexus", "ramsis", "by-load"}


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in REACTIVE])
@examples(12)
@given(candidate=candidates(), queries=arrivals(), late=modes)
def test_a_larger_batch_makes_no_query_late(name, candidate, queries, late):
    """RAMSIS, as published, runs all that wait where late ones are served."""
    late = "shed" if name == "ramsis" else late
    started = {}

    def check(seen, decision):
        started.update({q.id: hopeless(q, seen) for q in seen.queue if q.id in decision.run})

    timeline = served_by([Served(POLICIES[name](), candidate, late)], queries, check)
    by_id = {query.id: query for query in queries}
    for i, end in timeline.ends.items():
        assert started[i] or end <= by_id[i].deadline


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in SACRIFICING])
@examples(12)
@given(candidate=candidates(rising=True), queries=arrivals(most_rows=5))
def test_exactly_the_hopeless_are_dropped(name, candidate, queries):
    def check(seen, decision):
        fits = [query for query in seen.queue if query.rows <= candidate.max_batch]
        assert {q.id for q in fits if q.id in decision.drop} == {q.id for q in fits if hopeless(q, seen)}
        assert all(hopeless(query, seen) for query in seen.queue if query.id in decision.drop)

    served_by([Served(POLICIES[name](), candidate)], queries, check)


@pytest.mark.parametrize("name", [name for name in POLICIES if name in ("nexus", "clipper")])
@examples(12)
@given(candidate=candidates(), queries=arrivals(), late=modes)
def test_work_conserving_policies_never_leave_the_device_idle(name, candidate, queries, late):
    def check(seen, decision):
        assert decision.run or len(decision.drop) == len(seen.queue)

    served_by([Served(POLICIES[name](), candidate, late)], queries, check)


@every_policy
@examples(12)
@given(candidate=candidates(), queries=arrivals())
def test_late_ones_run_only_where_no_viable_query_is_made_late_by_it(name, candidate, queries):
    def check(seen, decision):
        viable = [query for query in seen.queue if not hopeless(query, seen)]
        if viable and decision.run and not {q.id for q in viable} & set(decision.run):
            rows = sum(query.rows for query in seen.queue if query.id in decision.run)
            free = seen.now + candidate.latency.seconds(rows)
            together = sum(query.rows for query in viable)
            assert together <= candidate.max_batch
            assert free + candidate.latency.seconds(together) <= viable[0].deadline + 1e-12

    served_by([Served(POLICIES[name](), candidate, "serve")], queries, check)


@every_policy
def test_equal_deadlines_go_by_id(name):
    candidate = Candidate(1, 90.0, LatencyModel([(1, 0.01), (2, 0.015)]), 2)
    queries = [Query(i, 0.0, 1.0) for i in (5, 3, 9, 1, 7)]
    timeline = served_by([Served(POLICIES[name](), candidate)], queries)
    assert [i for batch in timeline.batches for i in batch.ids] == [1, 3, 5, 7, 9]


# --- routers ---------------------------------------------------------------------------------------------------------

DEVICES = tuple("uvwxyz")
shares = st.dictionaries(st.sampled_from(DEVICES), st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.5]), min_size=1)
#: queries: rows, able devices, and when each device would answer
queries_to_route = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sets(st.sampled_from(DEVICES)),
        st.fixed_dictionaries({device: st.sampled_from([0.05, 0.5, 2.0]) for device in DEVICES}),
    ),
    max_size=40,
)


def played(name: str, routes: dict[str, float], queries, seed: int = 1, **others) -> list[str | None]:
    """A router's picks, each checked against what must hold."""
    router, picks = ROUTERS[name](seed), []
    router.set_routes({"q": list(routes.items()), **others})
    for rows, able, expected_s in queries:
        chosen = router.pick("q", rows, able, 1.0, expected_s.__getitem__, lambda device: 0)
        planned = {device for device in able if routes.get(device, 0) > 0}
        assert chosen in planned if planned else chosen is None
        picks.append(chosen)
        for other in others:
            assert router.pick(other, 1, {"apart"}, 1.0, lambda device: 0.1, lambda device: 0) == "apart"
    return picks


def undisturbed(name: str, routes: dict[str, float], count: int) -> Counter:
    return Counter(played(name, routes, [(1, set(routes), dict.fromkeys(DEVICES, 0.1))] * count))


@pytest.mark.parametrize("name", ROUTERS)
@given(routes=shares, queries=queries_to_route, seed=st.integers(0, 3))
def test_some_able_planned_device_gets_each_query_and_histories_repeat(name, routes, queries, seed):
    picks = played(name, routes, queries, seed)
    assert played(name, routes, queries, seed) == picks
    if name != "uniform":  # one source of chance for all applications
        assert played(name, routes, queries, seed, r=[("apart", 1.0)]) == picks


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "uniform"])
@given(routes=shares.filter(lambda routes: any(routes.values())), count=st.integers(1, 300))
def test_shares_hold_over_any_number_of_queries_within_one(name, routes, count):
    got, total = undisturbed(name, routes, count), sum(routes.values())
    assert all(abs(got[device] - count * share / total) < 1 + 1e-4 for device, share in routes.items())


# --- stacks ----------------------------------------------------------------------------------------------------------


def busy_world(**options):
    """Two applications on three devices, with a surge that the most accurate variants cannot serve."""
    models = [
        model("p", "good", 100, cpu={1: 40, 2: 60, 4: 110}, gpu={1: 10, 2: 14, 4: 22}),
        model("p", "fast", 80, cpu={1: 8, 2: 12, 4: 20}, gpu={1: 4, 2: 5, 4: 7}),
        model("q", "good", 100, cpu={1: 60, 2: 100}, gpu={1: 15, 2: 20, 4: 35}),
        model("q", "fast", 85, cpu={1: 20, 2: 30, 4: 55}),
    ]
    calm = [(25.0 * i, "p" if i % 3 else "q") for i in range(240)]
    surge = [(2500 + 4.0 * i, "p" if i % 2 else "q") for i in range(300)]
    control = ControlSettings(period_s=1.0, burst_check_s=0.5, initial_qps=5, solve_s=60)
    return world(models, calm + surge, ["cpu", "cpu", "gpu"], control=control, **options)


def test_every_part_that_a_stack_names_exists():
    assert next(iter(ALL)) == stacks.DEFAULT == stacks.LIVE[0]
    for name, stack in ALL.items():
        assert stack.name == name and choose(name) == stack
        late = stack.binding == "late"
        assert stack.batching == "nereus" if late else stack.batching in POLICIES
        assert stack.routing == "late-binding" if late else stack.routing in ROUTERS
    # No strategy can be had by no stack.
    assert {stack.strategy for stack in ALL.values()} == set(strategies.names())


def test_what_only_simulations_run_cannot_be_served_with():
    assert tuple(stacks.STACKS) == stacks.LIVE and stacks.STACKS.items() <= ALL.items()
    for name in ALL:
        if name in stacks.LIVE:
            bindings.create(name)
        else:
            with pytest.raises(bindings.UnknownStack):
                bindings.create(name)


#: loading takes no time in the short form only where a plan takes none either: policies take seconds to solve
RUNS = [
    pytest.param(name, load_time_s, marks=[pytest.mark.long] * (name in SLOW and not load_time_s))
    for name in ALL
    for load_time_s in (0.0, 0.2)
]


@pytest.mark.parametrize(("name", "load_time_s"), RUNS)
def test_every_query_is_counted_once_and_a_run_repeats(name, load_time_s):
    scenario = busy_world(load_time_s=load_time_s, max_resident={"cpu": 1, "gpu": 2})
    first, again = simulate(scenario, name), simulate(scenario, name)
    summary = first.summary
    assert summary["queries"] == len(scenario.arrivals) == 540
    assert summary["in_time"] + summary["late"] + summary["dropped"] == 540
    assert summary["in_time"] > 0
    assert first.record.outcome == again.record.outcome and first.record.variant == again.record.variant
