"""Every query that arrives is counted exactly once, and a seed gives the same run again."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler.simulation import SimulationError, simulate
from scheduler.simulation.engine import DROPPED, IN_TIME, LATE
from scheduler.simulation.scenario import ControlSettings
from scheduler.simulation.stacks import POLICIES, ROUTERS
from tests.examples import examples
from workers.dispatch.stack import published

from .worlds import model, world


@st.composite
def scenarios(draw):
    names = [f"q{i}" for i in range(draw(st.integers(1, 3)))]
    models = []
    for name in names:
        for j in range(draw(st.integers(1, 2))):
            kinds = draw(st.sets(st.sampled_from(["cpu", "gpu"]), min_size=1))
            base = draw(st.sampled_from([2.0, 15.0, 60.0, 170.0]))
            points = {kind: {1: base, 2: base * 1.2, 4: base * draw(st.sampled_from([0.9, 2.5]))} for kind in kinds}
            models.append(model(name, f"m{j}", 100.0 - 5 * j, **points))
    arrivals = draw(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(names)), min_size=1, max_size=120))
    return world(
        models,
        arrivals,
        draw(st.lists(st.sampled_from(["cpu", "gpu"]), min_size=1, max_size=3)),
        load_time_s=draw(st.sampled_from([0.0, 0.3])),
        network_s=draw(st.sampled_from([0.0, 0.004])),
        profile_noise=draw(st.sampled_from([0.0, 0.2])),
        profile_error=draw(st.sampled_from([0.0, 0.5])),
        stall_s=draw(st.sampled_from([0.0, 0.5])),
        max_resident=draw(st.sampled_from([{}, {"cpu": 1}, {"cpu": 2, "gpu": 2}])),
        seed=draw(st.integers(0, 5)),
        control=ControlSettings(
            period_s=1.0, burst_check_s=0.5, initial_qps=draw(st.sampled_from([0, 10, 200])), solve_s=30
        ),
    )


@examples(20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(scenarios(), st.sampled_from(list(POLICIES)), st.sampled_from(list(ROUTERS)))
def test_every_query_is_counted_once(scenario, batching, routing):
    results = simulate(scenario, published("proteus", batching, routing))
    count, s, record = len(scenario.arrivals), results.summary, results.record
    assert s["queries"] == count == s["in_time"] + s["late"] + s["dropped"]
    for i, (t, q) in enumerate(zip(scenario.arrivals.times, scenario.arrivals.applications, strict=True)):
        taken = record.answered[i] - t
        slo = scenario.slo_s[scenario.applications[q]]
        assert taken >= 0
        if record.outcome[i] == IN_TIME:
            assert taken <= slo + 1e-9
        elif record.outcome[i] == LATE:
            assert taken > slo
        # A variant of its own application ran, or nothing did.
        assert (record.variant[i] == -1) == (record.outcome[i] == DROPPED)
        if record.variant[i] >= 0:
            assert record.variants[record.variant[i]][0] == scenario.applications[q]
    for column in ("arrived", "in_time", "late", "dropped"):
        total = sum(getattr(second, column) for second in results.per_second)
        assert total == s["queries" if column == "arrived" else column]
        key = "queries" if column == "arrived" else column
        by_application = (counts[key] for counts in s["per_application"].values())
        assert sum(by_application) == total


@pytest.mark.parametrize("routing", ROUTERS)
def test_the_same_seed_gives_the_same_run_and_another_one_does_not(routing):
    models = [model("q", "m", cpu={1: 20, 4: 40}), model("p", "n", cpu={1: 30, 2: 50})]
    arrivals = [(7 * i, "q" if i % 3 else "p") for i in range(300)]
    scenario = world(models, arrivals, ["cpu"] * 3, profile_noise=0.1, seed=1)
    stack = published("proteus", "proteus", routing)
    runs = [simulate(s, stack).record for s in (scenario, scenario, replace(scenario, seed=2))]
    assert runs[0].answered == runs[1].answered and runs[0].outcome == runs[1].outcome
    assert runs[0].answered != runs[2].answered


def test_a_world_that_contradicts_itself_is_reported_and_not_planned_for():
    models = [model("a", "b/c", cpu={1: 10}), model("a/b", "c", cpu={1: 10})]
    with pytest.raises(SimulationError, match=r"cannot be planned for: .*must be unique"):
        simulate(world(models, [(0, "a"), (1, "a/b")]), "proteus")
