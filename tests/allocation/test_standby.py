"""When residents stay, and for how much demand they are chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation import nereus
from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.standby import with_standby
from scheduler.allocation.standby_choice import HIGHEST, carried
from scheduler.allocation.verification import violations
from tests.examples import examples

from .worlds import line, variant

#: items/s of a device with its quickest variant
QUICK = 150.0
APPLICATIONS = ("a", "b", "c")


def world(
    demand: Mapping[str, float], load_s: float = 0.0, expected: Mapping[str, float] | None = None, slower: float = 4.0
) -> Problem:
    """Six devices with two places, and three applications, each quick or accurate.

    Accurate variants take ``slower`` times as long.
    """
    return Problem(
        tuple(DeviceResources(f"d{i}", "cpu", max_resident=2) for i in range(6)),
        tuple(
            ApplicationDemand(name, 0.3, rate, expected=None if expected is None else expected[name])
            for name, rate in demand.items()
        ),
        tuple(
            replace(model, profiles={"cpu": replace(model.profiles["cpu"], load_s=load_s)})
            for name in APPLICATIONS
            for model in (
                variant(f"{name}-quick", name, 80, cpu=line(0, 1000 / QUICK)),
                variant(f"{name}-accurate", name, 100, cpu=line(0, slower * 1000 / QUICK)),
            )
        ),
    )


def evenly(rate: float) -> dict[str, float]:
    return dict.fromkeys(APPLICATIONS, rate)


def planned(problem: Problem, previous: Allocation | None = None, loaded: bool = True) -> Allocation:
    """The plan after ``previous``, whose residents are loaded."""
    if previous is not None:
        held = previous.residents if loaded else {}
        devices = tuple(replace(d, loaded=frozenset(held.get(d.id, ()))) for d in problem.devices)
        problem = replace(problem, devices=devices, previous=previous)
    plan = with_standby(problem, nereus.solve)
    assert violations(problem, plan) == []
    return plan


def served(plan: Allocation, names: Sequence[str] = APPLICATIONS) -> list[float]:
    return [plan.served[name] for name in names]


@pytest.mark.parametrize(("rate", "multiple"), [(10.0, HIGHEST[1]), (100.0, 3.0), (300.0, 1.0), (500.0, 1.0)])
def test_the_multiple_is_what_the_devices_carry(rate, multiple):
    assert carried(world(evenly(rate))) == pytest.approx(multiple, rel=0.06)


@given(rate=st.floats(1.0, 600.0), more=st.floats(1.0, 5.0))
@examples(15)
def test_more_demand_can_be_multiplied_by_no_more(rate, more):
    assert carried(world(evenly(rate * more))) <= carried(world(evenly(rate))) * 1.06


def test_no_margin_comes_before_what_another_application_is_expected_to_need():
    cheap = {"a": 800.0, "b": 120.0, "c": 120.0}
    expected = {"a": 500.0, "b": 110.0, "c": 110.0}
    for problem in (world(cheap, expected=expected), world(dict(reversed(cheap.items())), expected=expected)):
        plan = planned(problem)
        assert all(plan.served[name] >= 0.99 * rate for name, rate in expected.items()), plan.served
        assert sum(plan.left_out.values()) > 0


@pytest.mark.parametrize(("max_resident", "least"), [(1, 0.99), (None, 0.5)])
def test_no_application_starves_where_devices_carry_what_is_expected(max_resident, least):
    # Both devices for "many" would serve 57 items/s and nothing else, one each 50 + 6.8.
    demand, expected = {"many": 57.0, "few": 6.8}, {"many": 42.0, "few": 6.0}
    problem = Problem(
        tuple(DeviceResources(f"d{i}", "cpu", max_resident=max_resident) for i in range(2)),
        tuple(ApplicationDemand(name, 0.5, rate, expected=expected[name]) for name, rate in demand.items()),
        (
            variant("many-only", "many", 90, cpu=line(0, 1000 / 50)),
            variant("few-only", "few", 90, cpu=line(0, 1000 / 8)),
        ),
    )
    plan = planned(problem)
    assert all(plan.served[name] >= least * rate for name, rate in expected.items()), plan.served


def test_residents_stay_while_all_demand_grows_alike():
    first = planned(world(evenly(20.0), load_s=1.0))
    then = planned(world(evenly(40.0), load_s=1.0), first)
    assert then.residents == first.residents
    assert served(then) == pytest.approx([40.0] * 3)


def test_residents_are_chosen_anew_for_another_mix():
    first = planned(world({"a": 60.0, "b": 5.0, "c": 5.0}, load_s=1.0))
    then = planned(world({"a": 5.0, "b": 60.0, "c": 5.0}, load_s=1.0), first)
    assert then.provided == {"a": 5.0, "b": 60.0, "c": 5.0}
    assert served(then) == pytest.approx([5.0, 60.0, 5.0])


def test_residents_are_chosen_anew_once_devices_have_no_room_for_accurate_ones():
    first = planned(world(evenly(20.0), load_s=1.0))
    then = planned(world(evenly(200.0), load_s=1.0), first)
    assert first.carried > 2.5 > then.carried
    assert then.provided == evenly(200.0)


def test_a_steady_demand_gets_accurate_residents_where_devices_have_some_room():
    problem = world(evenly(170.0), load_s=1.0, slower=1.5)
    first = planned(problem)
    assert 1.4 < first.carried < 2.5 and first.accuracy < 98
    then = planned(problem, first)
    assert then.accuracy == pytest.approx(100.0) and served(then) == pytest.approx([170.0] * 3)
    assert planned(problem, then).residents == then.residents
    burst = planned(world({"a": 255.0, "b": 170.0, "c": 170.0}, load_s=1.0, slower=1.5), then)
    assert 1.25 < burst.carried < 1.6 and burst.residents == then.residents
    full = planned(world(evenly(245.0), load_s=1.0, slower=1.5), then)
    assert full.carried < 1.25 and full.provided == evenly(245.0) and not full.steady


@pytest.mark.parametrize(("rate", "room"), [(185.0, True), (220.0, False)])
def test_quick_residents_stay_while_demand_grows_and_without_room(rate, room):
    first = planned(world(evenly(150.0), load_s=1.0, slower=1.5))
    problem = world(evenly(rate), load_s=1.0, slower=1.5)
    grown = planned(problem, first)
    assert (grown.carried > 1.4) == room and grown.residents == first.residents
    steady = planned(problem, grown)
    assert (steady.residents != grown.residents) == (steady.accuracy > grown.accuracy + 0.5) == room


@pytest.mark.parametrize(("load_s", "stays"), [(0.5, False), (600.0, True)])
def test_without_time_to_spare_only_loads_that_pay_are_made(load_s, stays):
    lopsided = planned(world({"a": 600.0, "b": 100.0, "c": 100.0}, load_s=load_s))
    full = {"a": 100.0, "b": 600.0, "c": 100.0}
    then = planned(world(full, load_s=load_s), lopsided)
    assert (then.provided == lopsided.provided) == stays
    if not stays:
        assert served(then) == pytest.approx(list(full.values()), rel=0.02)
