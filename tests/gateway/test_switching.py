"""Switching stacks while queries are under way."""

from __future__ import annotations

import itertools
import threading

import pytest

from workers.dispatch import stacks

from .conftest import application, config, plan, wait_for

SPECS = [application("numbers")]
BOTH = {"d0": [("numbers", "big")], "d1": [("numbers", "big")]}


def started(control_plane, gateways, first):
    control_plane.first = config(first, SPECS)
    gateway = gateways(NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="token")
    gateway.wait_ready()
    return gateway


def test_a_gateway_changes_its_stack_with_queries_under_way_and_none_fails(control_plane, devices, gateways):
    one, two = devices("d0", "d1")
    endpoints = {device.name: device.endpoint for device in (one, two)}
    for device in (one, two):
        device.warm(("numbers", "big"))
        device.tell(delay_s=0.02)
    versions = itertools.count(1)

    def plan_by(name: str):
        return plan(next(versions), BOTH, endpoints, name)

    gateway = started(control_plane, gateways, plan_by(stacks.DEFAULT))
    answers: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answers.append(gateway.infer([[1, 2, 3, 4]]).status_code)

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    for name in [*stacks.LIVE, "of the future", stacks.DEFAULT]:
        count = len(answers)
        control_plane.send(config(plan_by(name), SPECS))
        wait_for(lambda count=count: len(answers) > count + 30, f"queries go on under {name}")
    stop.set()
    for client in clients:
        client.join()
    assert set(answers) == {200}
    assert len([line for line in gateway.log if "stack_switched" in line]) == len(stacks.LIVE)
    assert any("stack_unknown" in line and "of the future" in line for line in gateway.log)
    assert min(len(device.reported("grant")) for device in (one, two)) > 20


def test_a_device_that_is_lost_after_a_switch_has_its_queries_answered_elsewhere(control_plane, devices, gateways):
    one, two = devices("d0", "d1")
    endpoints = {device.name: device.endpoint for device in (one, two)}
    one.supervised = False
    for device in (one, two):
        device.warm(("numbers", "big"))
        device.tell(delay_s=3.0)
    gateway = started(control_plane, gateways, plan(1, BOTH, endpoints, "proteus"))
    # Ready is a gateway with one device: on a busy machine the other may not be connected yet.
    known = lambda: gateway.health()["devices"].values()  # noqa: E731
    wait_for(lambda: sum(bool(each["connected"] and each["warm"]) for each in known()) == 2, "both can run")
    answers: list[int] = []
    clients = [threading.Thread(target=lambda: answers.append(gateway.infer([[1, 2, 3, 4]]).status_code)) for _ in "ab"]
    for client in clients:
        client.start()
    wait_for(lambda: one.reported("grant") and two.reported("grant"), "both devices run")
    control_plane.send(config(plan(2, BOTH, endpoints, "nereus"), SPECS))
    wait_for(lambda: any("stack_switched" in line and "nereus" in line for line in gateway.log), "it switches")
    one.kill()
    for client in clients:
        client.join(120)
    assert answers == [200, 200]
    one.start()
    one.warm(("numbers", "big"))
    wait_for(lambda: gateway.health()["devices"]["d0"]["connected"], "the device is connected again")


@pytest.mark.parametrize("stack", ["nereus", "proteus"])
@pytest.mark.parametrize("new", [False, True], ids=["a known device", "a new device"])
def test_queries_that_wait_move_with_their_application(stack, new, control_plane, devices, gateways):
    """Whatever the order in which the gateway looks at devices."""
    one, two = devices("d0", "d1")
    endpoints = {device.name: device.endpoint for device in (one, two)}
    one.warm(("numbers", "big"))
    one.tell(delay_s=2.0)
    two.warm(("numbers", "small"))
    placed = {"d0": [("numbers", "big")]} | ({} if new else {"d1": []})
    gateway = started(control_plane, gateways, plan(1, placed, endpoints, stack))
    answers: list = []
    ask = lambda: answers.append(gateway.infer([[1, 2, 3, 4]]))  # noqa: E731
    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    wait_for(lambda: one.reported("grant"), "a query runs")
    wait_for(lambda: gateway.health()["in_flight"] + len(answers) == 4, "the others wait")
    placed = {"d0": [], "d1": [("numbers", "small")]}
    control_plane.send(config(plan(2, placed, endpoints, stack), SPECS))
    for client in clients:
        client.join(120)
    assert [answer.status_code for answer in answers] == [200] * 4, [answer.text for answer in answers]
    assert "d1" in {answer.json()["parameters"]["device"] for answer in answers}
