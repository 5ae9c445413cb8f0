"""Another routing while queries are under way: what is known stays known, and no query is lost or counted twice."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.conftest import (  # noqa: F401 (fixtures)
    application,
    config,
    control_plane,
    devices,
    gateways,
    plan,
    wait_for,
)
from workers.batching.latency import LatencyModel
from workers.dispatch import routing, stacks
from workers.dispatch.routing.least_completion import Router
from workers.dispatch.routing.switch import SwitchingRouter

LATENCY = LatencyModel([(1, 0.01), (4, 0.02)])
DEVICES = ("x", "y")


def router(name: str = routing.DEFAULT) -> SwitchingRouter:
    made = SwitchingRouter(name)
    for device in DEVICES:
        made.up(device)
        made.service(device, "q", LATENCY, 4)
    made.set_routes({"q": [("x", 0.5), ("y", 0.5)]})
    return made


def outstanding(made: SwitchingRouter, device: str) -> int:
    assert isinstance(made._router, Router)
    return made._router.outstanding(device, "q")


def test_a_new_router_knows_what_is_under_way_and_settles_it():
    made = router("shares")
    for _ in range(3):
        made.sent("x", "q", 2, 0.0)
    assert made.switch("least-completion", 0.1)
    assert (outstanding(made, "x"), outstanding(made, "y")) == (6, 0)
    made.sent("x", "q", 1, 0.1)
    for _ in range(3):
        made.done("x", "q", 2, 0.2, True)
    assert outstanding(made, "x") == 1


def test_answers_to_an_old_routers_queries_do_not_count_for_later_ones():
    made = router()
    made.sent("x", "q", 4, 0.0)
    made.switch("shares", 0.0)
    made.done("x", "q", 4, 0.1, True)
    made.switch("least-completion", 0.1)
    assert outstanding(made, "x") == 0


def test_a_new_router_knows_what_is_down_draining_and_busy():
    made = router("shares")
    made.down("y")
    made.state("x", {"q": 8}, 0.5, False, 1.0)
    made.switch("least-completion", 1.0)
    assert {made.pick("q", 1.0, 1.0) for _ in range(4)} == {"x"}
    made.up("y")
    assert {made.pick("q", 1.0, 0.5) for _ in range(4)} == {"y"}, "x is busy for longer"
    made.down("y")
    made.state("x", {}, 0.0, True, 1.1)
    made.switch("shares", 1.1)
    made.switch("least-completion", 1.1)
    assert made.pick("q", 1.1, 1.0) is None
    made.up("y")
    assert made.pick("q", 1.1, 1.0) == "y"


def test_the_same_name_changes_nothing_and_an_unknown_one_neither():
    made = router()
    before = made._router
    assert not made.switch(routing.DEFAULT, 0.0)
    with pytest.raises(routing.UnknownRouting, match="routing: 'best' is not one of late-binding, least-completion"):
        made.switch("best", 0.0)
    assert made._router is before and made.name == routing.DEFAULT


def test_a_device_that_left_for_good_is_forgotten():
    made = router()
    made.sent("x", "q", 1, 0.0)
    made.down("x")
    made.set_routes({"q": [("y", 1.0)]})
    assert ("x", "q") in made._service, "it still owes an answer"
    made.done("x", "q", 1, 0.1, False)
    made.set_routes({"q": [("y", 1.0)]})
    assert list(made._service) == [("y", "q")] and not made._under_way


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pick"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.integers(0, 20)),
        st.tuples(st.just("switch"), st.sampled_from(routing.names())),
        st.tuples(st.sampled_from(["up", "down"]), st.sampled_from(DEVICES)),
    ),
    max_size=60,
)


@given(EVENTS)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_the_router_at_work_counts_just_what_is_under_way(events):
    made, under_way, up = router(), [], set(DEVICES)
    for now, (kind, what) in enumerate(events):
        if kind == "pick":
            device = made.pick("q", float(now), 1.0, what)
            assert device in up if up else device is None
            if device is not None:
                made.sent(device, "q", what, float(now))
                under_way.append((device, what))
        elif kind == "answer" and under_way:
            device, rows = under_way.pop(what % len(under_way))
            made.done(device, "q", rows, float(now), True)
        elif kind == "switch":
            made.switch(what, float(now))
        elif kind in ("up", "down"):
            getattr(made, kind)(what)
            up = up | {what} if kind == "up" else up - {what}
    made.switch("shares", 1e3)
    made.switch("least-completion", 1e3)
    for device in DEVICES:
        assert outstanding(made, device) == sum(rows for on, rows in under_way if on == device)


def test_a_gateway_changes_its_stack_with_queries_under_way_and_none_fails(control_plane, devices, gateways):  # noqa: F811
    one, two = devices("d0", "d1")
    endpoints = {device.name: device.endpoint for device in (one, two)}
    placed = {"d0": [("numbers", "big")], "d1": [("numbers", "big")]}
    for device in (one, two):
        device.warm(("numbers", "big"))
        device.tell(delay_s=0.02)
    specs = [application("numbers")]
    versions = itertools.count(1)

    def plan_by(name: str):
        return plan(next(versions), placed, endpoints, name)

    control_plane.first = config(plan_by(stacks.DEFAULT), specs)
    gateway = gateways(NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="token")
    gateway.wait_ready()
    answers: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answers.append(gateway.infer([[1, 2, 3, 4]]).status_code)

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    for name in [*stacks.STACKS, "of the future", stacks.DEFAULT]:
        count = len(answers)
        control_plane.send(config(plan_by(name), specs))
        wait_for(lambda count=count: len(answers) > count + 30, f"queries go on under {name}")
    stop.set()
    for client in clients:
        client.join()
    assert set(answers) == {200}
    switched = [line for line in gateway.log if "routing_switched" in line]
    routings = [stack.routing for stack in stacks.STACKS.values()]
    assert len(switched) == 1 + sum(one != other for one, other in itertools.pairwise(routings))
    assert any("stack_unknown" in line and "of the future" in line for line in gateway.log)
    assert min(len(device.heard("submit")) for device in (one, two)) > 20
