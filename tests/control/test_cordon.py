"""A cordoned node gets nothing to run, unloads, and is drained; uncordoned, it is planned on again."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from registry import members
from registry.models import Device, Node, ProfileJob
from scheduler import live
from scheduler.control.assemble import available_devices
from scheduler.control.planner import make_plan
from scheduler.members import push
from scheduler.models import Plan
from scheduler.profiling.dispatch import dispatch
from tests.accounts import account, bearer
from tests.control.world import KIND, application, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world():
    """Two nodes, one application, and a plan with both."""
    for name in ("one", "two"):
        node(name, devices=1)
    made = variant(application(), "best", 90, 5)
    Device.objects.update(warm=[made.pk])
    make_plan("periodic")
    return made


def residents(plan: Plan) -> dict[str, int]:
    return {device["device"]: len(device["residents"]) for device in plan.wire["devices"]}


def test_plans_name_a_cordoned_nodes_devices_with_nothing_to_run(world):
    live.client().delete("nereus:plan_waiting")
    one = members.cordon(Node.objects.get(name="one"))
    assert live.client().exists("nereus:plan_waiting"), "the change asks for a plan"
    assert [device.ref for device in available_devices()] == ["two/cpu0"]
    plan = make_plan("change")
    assert residents(plan) == {"one/cpu0": 0, "two/cpu0": 1}
    assert {route["device"] for route in plan.wire["routes"]} == {"two/cpu0"}
    shared = push.read_shared()
    (mine,) = push.node_config(one.pk, shared).plan.devices
    assert mine.standby == () and mine.residents == (), "it keeps nothing loaded"
    other = Node.objects.get(name="two")
    assert push.node_config(other.pk, shared).plan.devices[0].standby == (world.pk,)

    assert not Node.objects.get(name="one").drained
    Device.objects.filter(node=one).update(warm=[])
    assert Node.objects.get(name="one").drained

    live.client().delete("nereus:plan_waiting")
    members.uncordon(one)
    assert live.client().exists("nereus:plan_waiting")
    assert len(make_plan("change").problem["devices"]) == 2 and not Node.objects.get(name="one").drained


def test_the_last_node_goes_on_serving(world):
    for one in Node.objects.all():
        members.cordon(one)
    before = Plan.objects.first().pk
    assert make_plan("change") is None and Plan.objects.first().pk == before


def test_nothing_is_profiled_on_a_cordoned_node(world):
    members.cordon(Node.objects.get(name="one"))
    ProfileJob.objects.create(variant=variant(application("a"), "v", 80, 5), device_type=KIND)
    assert dispatch() == 1
    assert ProfileJob.objects.get().device.ref == "two/cpu0"


def test_rest_and_console_cordon_and_show_it(world):
    client = Client(headers={"authorization": bearer(account("operator", "operator"))})
    answer = client.post("/api/v1/nodes/one/cordon/").json()
    assert answer["cordoned_at"] and not answer["drained"]
    assert client.post("/api/v1/nodes/one/cordon/").json()["cordoned_at"] == answer["cordoned_at"]
    browser = Client()
    browser.force_login(account("reader", "viewer"))
    page = browser.get("/nodes/").content.decode()
    assert 'data-testid="cordoned-one"' in page and 'data-testid="uncordon-one"' not in page
    Device.objects.update(warm=[])
    assert client.get("/api/v1/nodes/one/").json()["drained"]
    assert client.delete("/api/v1/nodes/one/cordon/").json()["cordoned_at"] is None
    browser.force_login(User.objects.get(username="operator"))
    assert 'data-testid="cordon-one"' in browser.get("/nodes/").content.decode()
