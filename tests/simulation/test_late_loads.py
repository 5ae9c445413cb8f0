"""When devices load what the plan wants, and what goes for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.devices import LateDevice
from scheduler.simulation.engine import IN_TIME
from scheduler.simulation.scenario import ControlSettings
from workers.dispatch.stacks import DEFAULT, STACKS

from .worlds import model, world

#: late binding of what another strategy places
LATE_PROTEUS = replace(STACKS[DEFAULT], strategy="proteus")

# --- what is resident -------------------------------------------------------------------------------------------------


def device(places: int | None) -> LateDevice:
    return LateDevice("cpu-0", "cpu", places)


def load_all(residents: LateDevice) -> None:
    while residents.loads:
        residents.begin(residents.loads[0])
        residents.load_ended()


def test_what_is_loaded_stays_until_its_place_is_needed():
    residents = device(2)
    residents.plan(["a", "b"])
    load_all(residents)
    residents.plan(["b"])
    assert residents.warm() == ["a", "b"]
    residents.plan(["b", "c"])
    residents.begin("c")
    # What the plan does not name is gone as soon as the load begins; what it names stays.
    assert residents.warm() == ["b", "c"] and list(residents.loaded) == ["b"]


def test_a_load_under_way_is_not_begun_again_by_the_next_plan():
    residents = device(2)
    residents.plan(["a"])
    residents.begin("a")
    residents.plan(["a", "b"])
    assert residents.loads == ["b"]
    residents.plan(["b"])
    residents.load_ended()
    load_all(residents)
    # It was loaded for nothing, but nothing needed its place.
    assert residents.warm() == ["a", "b"]


# --- in a run ---------------------------------------------------------------------------------------------------------

SLOW = model("q", "accurate", 100, cpu={1: 100})
QUICK = model("q", "quick", 80, cpu={1: 10, 4: 20})


def used(record):
    return [record.variants[v][1] if v >= 0 else None for v in record.variant]


def test_a_sole_device_under_pressure_gets_the_quick_variant_that_it_needs():
    """It has one place, and would be out of service for longer than its application can wait."""
    arrivals = [(400.0 * i, "q") for i in range(10)] + [(4000 + 20.0 * i, "q") for i in range(900)]
    control = ControlSettings(period_s=2, burst_check_s=1, initial_qps=2)
    scenario = world([SLOW, QUICK], arrivals, control=control, load_time_s=0.2, max_resident={"cpu": 1})
    record = simulate(scenario, LATE_PROTEUS).record
    assert used(record)[1] == "accurate"
    assert record.outcome[-300:].count(IN_TIME) == 300 and set(used(record)[-300:]) == {"quick"}


def test_an_idle_device_loads_in_the_end_though_nothing_else_happens_there():
    """It is the only host of an application that nobody asks for any more, and is wanted for another one."""
    other = model("p", "n", cpu={1: 100, 4: 120})
    first = model("q", "m", cpu={1: 100, 4: 120})
    arrivals = [(500.0, "q")] + [(2000 + 50.0 * i, "p") for i in range(400)]
    control = ControlSettings(period_s=1, burst_check_s=0.5, initial_qps=1)
    scenario = world([first, other], arrivals, ["cpu"] * 2, control=control, load_time_s=0.2, max_resident={"cpu": 1})
    results = simulate(scenario, LATE_PROTEUS)
    assert results.record.outcome[-100:].count(IN_TIME) == 100


def test_devices_that_load_are_counted_on_for_what_they_have_and_do_not_load_it_all_before_they_serve():
    """At first both of them load, and either has what the other one has not."""
    models = [model(f"q{i}", "m", cpu={1: 10, 4: 20}, gpu={1: 10, 4: 20}) for i in range(4)]
    arrivals = [(25.0 * i, f"q{i % 4}") for i in range(160)]
    results = simulate(world(models, arrivals, ["cpu", "gpu"], load_time_s=1.0), "nereus")
    # Two loads each: after 2 s each application has a device, and after 4 s both would have everything.
    settled = [o for o, at in zip(results.record.outcome, results.scenario.arrivals.times, strict=True) if at >= 2.0]
    assert len(settled) == 80 and set(settled) == {IN_TIME}


@pytest.mark.parametrize("stack", [DEFAULT, LATE_PROTEUS])
def test_what_is_loaded_already_is_no_load_of_the_next_plan_though_loads_take_no_time(stack):
    models = [model("q", "exact", 100, cpu={1: 40, 4: 60}), model("q", "rough", 80, cpu={1: 5, 4: 11})]
    arrivals = [(20 * i, "q") for i in range(500)]
    control = ControlSettings(period_s=1.0, burst_check_s=1000)
    results = simulate(world(models, arrivals, ("cpu", "cpu"), control=control), stack)
    first, *others = results.record.plans
    assert first.allocation.moves > 0 and len(others) > 5
    # Two devices can load two variants once each.
    assert results.summary["loads"] <= 4


def test_the_quickest_variant_of_an_application_that_nothing_serves_is_loaded_first():
    """Three applications share a device. The accurate variants, which the plan counts on, come later."""
    models = []
    for name in ("p", "q", "r"):
        models.append(model(name, "accurate", 100, cpu={1: 40, 4: 120}))
        models.append(model(name, "quick", 80, cpu={1: 5, 4: 10}))
    arrivals = [(25.0 * i, "pqr"[i % 3]) for i in range(400)]
    record = simulate(world(models, arrivals, load_time_s=0.2, network_s=0.002), "nereus").record
    ran = used(record)
    first = [next(variant for variant in ran[start::3] if variant is not None) for start in range(3)]
    assert first == ["quick"] * 3 and "accurate" in ran
