"""Each baseline with its own batching and routing, simulated.

Every query is counted once, and runs repeat.
"""

from __future__ import annotations

import pytest

from scheduler.allocation import by_policy, infadapter, strategies
from scheduler.allocation.baselines import BASELINES
from scheduler.simulation import simulate
from scheduler.simulation.policies import POLICIES
from scheduler.simulation.routers import ROUTERS
from scheduler.simulation.scenario import ControlSettings
from scheduler.simulation.stacks import choose
from tests.simulation.worlds import model, world
from workers.dispatch import stacks
from workers.dispatch.published.routing import ROUTERS as LIVE_ROUTERS

pytestmark = pytest.mark.wide

PUBLISHED = {
    "proteus": ("proteus", "shares"),
    "clipper-ht": ("clipper", "shares"),
    "clipper-ha": ("clipper", "shares"),
    "sommelier": ("proteus", "shares"),
    "infaas-accuracy": ("nexus", "active-first"),
    "infaas-ilp": ("nexus", "active-first"),
    "infaas-greedy": ("nexus", "active-first"),
    "clipper+": ("nexus", "active-first"),
    "sm+": ("nexus", "active-first"),
    "proteus-wo-ms": ("proteus", "shares"),
    "proteus-wo-mp": ("proteus", "shares"),
    "proteus-wo-ab": ("proteus", "shares"),
    "proteus-wo-qa": ("proteus", "uniform"),
    "ramsis": ("ramsis", "shares"),
    "ramsis-by-decisions": ("ramsis", "shares"),
    "ramsis-gamma": ("ramsis", "shares"),
    "ramsis-shortest-queue": ("ramsis", "shortest-queue"),
    "ramsis-variable": ("ramsis", "shares"),
    "ramsis-by-models": ("ramsis", "shares"),
    "ramsis-known-load": ("ramsis", "shares"),
    "jellyfish+": ("by-load", "shortest-queue"),
    "modelswitching": ("by-load", "shortest-queue"),
    "infadapter": ("nexus", "shares"),
    "ms+": ("nexus", "shares"),
    "vpa+": ("nexus", "shares"),
    "vpa+-middle": ("nexus", "shares"),
    "vpa+-fast": ("nexus", "shares"),
}


def busy_world(**options):
    """Return two applications on three devices, with a surge.

    The most accurate variants cannot serve the surge.
    """
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


def test_each_published_stack_has_its_own_batching_and_routing():
    published = {"proteus", *BASELINES, *by_policy.STRATEGIES, *infadapter.STRATEGIES}
    assert published == PUBLISHED.keys() == stacks.STACKS.keys() - {"nereus"}
    for name, own in PUBLISHED.items():
        stack = choose(name)
        assert stack == stacks.STACKS[name] and stack.binding == "published"
        assert (stack.batching, stack.routing) == own
        assert choose(name, routing="round-robin").routing == "round-robin"
    assert stacks.STACKS["nereus"].binding == "late" == choose(routing="late-binding-wo-prices").binding


def test_every_part_that_a_stack_names_exists():
    assert next(iter(stacks.STACKS)) == stacks.DEFAULT in stacks.LIVE
    for name, stack in stacks.STACKS.items():
        assert stack.name == name
        assert stack.strategy in strategies.names()
        assert stack.batching in POLICIES
        late = stack.binding == stacks.LATE
        assert stack.routing in ([stacks.LATE_BINDING] if late else LIVE_ROUTERS if stack.live else ROUTERS)
    # No strategy can be had by no stack.
    assert {stack.strategy for stack in stacks.STACKS.values()} == set(strategies.names())


def test_few_stacks_are_for_serving():
    live = ("nereus", "proteus", "infaas-accuracy", "infaas-greedy", "clipper-ha", "ramsis", "infadapter")
    assert sorted(stacks.LIVE) == sorted(live)


#: loading takes no time in the short form only where a plan takes none either: policies take seconds to solve
RUNS = [
    pytest.param(name, load_time_s, marks=[pytest.mark.long] * (name in by_policy.STRATEGIES and not load_time_s))
    for name in [*BASELINES, *by_policy.STRATEGIES, *infadapter.STRATEGIES]
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


def test_the_static_ones_keep_their_accuracy_and_the_others_give_it_way():
    used = {name: {v for v in simulate(busy_world(), name).record.variant if v >= 0} for name in BASELINES}
    good, fast = {0, 2}, {1, 3}
    assert used["clipper-ht"] == fast
    assert used["clipper-ha"] <= good and used["proteus-wo-ms"] <= good
    for name in ("sommelier", "proteus-wo-mp", "infaas-accuracy", "proteus-wo-ab", "proteus-wo-qa"):
        assert used[name] & fast and used[name] & good, name


def test_batches_of_one_are_batches_of_one():
    record = simulate(busy_world(), "proteus-wo-ab").record
    ends: dict[tuple[float, int], int] = {}
    for when, v in zip(record.answered, record.variant, strict=True):
        if v >= 0:
            ends[when, v] = ends.get((when, v), 0) + 1
    # Three devices may end at the same moment, one row each.
    assert max(ends.values()) <= 3
