"""Devices of other boxes, to which tensors take a part of each batch's time."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import ServingOption

from .driver import ANSWERED, REFUSED, World, menu

RTT_S = 0.002


def far(variant: str, run_s: float, transfer_s: float, rows: int = 1, accuracy: float = 100.0) -> ServingOption:
    latency = LatencyModel([(n, n * (run_s + transfer_s)) for n in range(1, rows + 1)])
    return ServingOption(variant, accuracy, latency, rows, row_transfer_s=transfer_s)


def near(variant: str, run_s: float, rows: int = 1) -> ServingOption:
    return far(variant, run_s, 0.0, rows)


def test_a_query_without_the_time_for_its_way_stays_on_the_near_device():
    devices = {"far": {"a": menu(far("v", 0.010, 0.050))}, "near": {"a": menu(near("v", 0.010))}}
    world = World({"a": 1.0}, devices, RTT_S)
    hurried = [world.submit("a", budget_s=0.03) for _ in range(2)]
    patient = world.submit("a", budget_s=0.1)
    world.finish()
    assert [query.device for query in hurried] == ["near", "near"]
    assert patient.state == ANSWERED
    refused = World({"a": 1.0}, {"far": devices["far"]}, RTT_S).submit("a", budget_s=0.055)
    assert refused.state == REFUSED


def test_the_next_batch_is_on_its_way_while_one_runs():
    world = World({"a": 10.0}, {"far": {"a": menu(far("v", 0.040, 0.030))}}, RTT_S)
    queries = [world.submit("a") for _ in range(10)]
    world.finish()
    assert all(query.state == ANSWERED for query in queries)
    # One way at the start; after that the device hardly waits (0.7 s, if each batch were on its way alone).
    assert world.now == pytest.approx(RTT_S + 0.030 + 10 * 0.040, abs=0.02)


def test_time_on_the_way_is_not_taken_for_a_slow_device():
    world = World({"a": 1.0}, {"far": {"a": menu(far("v", 0.010, 0.030))}}, RTT_S)
    for _ in range(100):
        world.submit("a")
        world.advance(0.2)
    (device,) = world.binding._groups.devices.values()
    (option,) = next(iter(device.option_sets.values())).options
    assert device.corrections[option] == pytest.approx(1.0, abs=0.01)


@given(
    st.floats(0.001, 0.05),
    st.floats(0.0, 1.0),
    st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 3), st.floats(0.001, 0.5)), min_size=1, max_size=30),
)
def test_whatever_is_dispatched_is_answered_in_time(run_s, part, arrivals):
    some = far("good", run_s, part * run_s, 4), far("quick", run_s / 4, part * run_s / 4, 4, 80.0)
    world = World({"a": 0.5}, {"far": {"a": menu(*some)}, "near": {"a": menu(near("good", run_s, 4))}}, RTT_S)
    world.disturbed = True
    for pause_s, rows, budget_s in arrivals:
        world.advance(pause_s)
        world.submit("a", rows, budget_s)
    world.finish()
    assert {query.state for query in world.queries} <= {ANSWERED, REFUSED}


def test_offers_of_earlier_estimates_are_forgotten():
    world = World({"a": 1.0}, {"far": {}}, RTT_S)
    first = menu(far("v", 0.010, 0.050))
    known = weakref.ref(first)
    world.offer("far", {"a": first})
    world.offer("far", {"a": menu(far("v", 0.010, 0.040))})
    del first
    gc.collect()
    assert known() is None
