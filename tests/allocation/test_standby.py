"""When residents stay, and for how much demand they are chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.allocation import nereus
from scheduler.allocation.problem import Allocation, ApplicationDemand, DeviceResources, Problem
from scheduler.allocation.standby import HIGHEST, with_standby
from scheduler.allocation.verification import violations
from tests.examples import examples

from .worlds import line, variant

#: items/s of a device with its quickest variant
QUICK = 150.0
APPLICATIONS = ("a", "b", "c")


def world(
    demand: Mapping[str, float], load_s: float = 0.0, expected: Mapping[str, float] | None = None, slower: float = 4.0
) -> Problem:
    """Six devices of two places; three applications, whose accurate variants take ``slower`` times as long."""
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
    plan = with_standby(problem)
    assert violations(problem, plan) == []
    return plan


def served(plan: Allocation, names: Sequence[str] = APPLICATIONS) -> list[float]:
    return [plan.served[name] for name in names]


@given(rate=st.floats(1.0, 600.0))
@examples(15)
def test_the_multiple_is_what_the_devices_carry(rate):
    assert nereus.carried(world(evenly(rate))) == pytest.approx(6 * QUICK / (3 * rate))
    assert planned(world(evenly(rate))).carried == pytest.approx(min(HIGHEST, max(1.0, 2 * QUICK / rate)))


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


def test_residents_serve_another_mix_or_are_chosen_anew():
    first = planned(world({"a": 60.0, "b": 5.0, "c": 5.0}, load_s=1.0))
    then = planned(world({"a": 5.0, "b": 60.0, "c": 5.0}, load_s=1.0), first)
    assert served(then) == pytest.approx([5.0, 60.0, 5.0])
    full = planned(world({"a": 100.0, "b": 600.0, "c": 100.0}, load_s=1.0), then)
    assert served(full) == pytest.approx([100.0, 600.0, 100.0], rel=0.02)


def test_residents_are_chosen_anew_once_half_of_the_room_is_used():
    first = planned(world(evenly(20.0), load_s=1.0))
    assert first.ready_for == HIGHEST
    stays = planned(world(evenly(140.0), load_s=1.0), first)
    assert stays.residents == first.residents and stays.ready_for == HIGHEST
    then = planned(world(evenly(200.0), load_s=1.0), first)
    assert then.ready_for == then.carried == pytest.approx(1.5)


def test_quick_residents_give_way_to_accurate_ones_once_there_is_room():
    first = planned(world(evenly(280.0), load_s=1.0))
    assert first.accuracy < 85
    then = planned(world(evenly(60.0), load_s=1.0), first)
    assert then.accuracy > 99 and then.ready_for > first.ready_for
    assert planned(world(evenly(60.0), load_s=1.0), then).residents == then.residents


# --- small applications ----------------------------------------------------------------------------------------------


def with_small(others: Sequence[float], rate: float, devices: int, places: int | None = None) -> Problem:
    """Applications of one SLO, of which the last, at ``rate`` items/s, runs 2 ms."""
    names = [f"other{i}" for i in range(len(others))]
    variants = [variant(f"{name}-{kind}", name, acc, cpu=line(1, ms)) for name in names
                for kind, acc, ms in (("quick", 80, 4), ("good", 100, 12))]  # fmt: skip
    return Problem(
        tuple(DeviceResources(f"d{i}", "cpu", max_resident=places) for i in range(devices)),
        (
            *(ApplicationDemand(n, 0.2, q) for n, q in zip(names, others, strict=True)),
            ApplicationDemand("s", 0.2, rate),
        ),
        (*variants, variant("small", "s", 90, cpu=line(1, 1))),
    )


@given(
    st.lists(st.floats(0.0, 20_000.0), min_size=1, max_size=4),
    st.floats(0.01, 7.0),
    st.integers(1, 3),
    st.sampled_from((None, 2, 3)),
    st.floats(0.1, 10.0),
)
@examples(25)
def test_a_small_application_is_served_whole_whatever_others_need(others, rate, devices, places, burst):
    # Where all of them are small, each needs a place.
    assume(places is None or devices * places > len(others))
    first = planned(with_small(others, rate, devices, places))
    assert first.served["s"] == pytest.approx(rate, rel=1e-5)
    later = planned(with_small([q * burst for q in others], rate, devices, places), first)
    assert later.served["s"] == pytest.approx(rate, rel=1e-5)


def test_an_application_that_others_would_pay_for_has_no_floor():
    problem = with_small([500.0], 5.0, 1)
    large = replace(problem, variants=(*problem.variants[:-1], variant("small", "s", 90, cpu=line(0, 60))))
    assert [a.floor for a in nereus.with_small_served(problem).applications] == [0.0, 1.0]
    assert nereus.with_small_served(large) is large
