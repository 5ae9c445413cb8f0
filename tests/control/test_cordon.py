"""A cordoned node gets nothing to run, unloads, and is drained; uncordoned, it is planned on again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from registry import members
from registry.errors import Conflict
from registry.models import Device, Node, ProfileJob
from scheduler.control import upkeep
from scheduler.control.assemble import available_devices
from scheduler.control.planner import make_plan
from scheduler.members import contents
from scheduler.models import Plan
from scheduler.profiling.dispatch import dispatch
from tests.accounts import account, bearer, signed_in
from tests.control.world import KIND, application, node, requested, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world():
    for name in ("one", "two"):
        node(name, devices=1)
    made = variant(application(), "best", 90, 5)
    Device.objects.update(warm=[made.pk])
    make_plan("periodic")
    return made


def residents(plan: Plan) -> dict[str, int]:
    return {device["device"]: len(device["residents"]) for device in plan.wire["devices"]}


def test_plans_name_a_cordoned_nodes_devices_with_nothing_to_run(world):
    requested()
    one = members.cordon(Node.objects.get(name="one"))
    assert requested(), "the change asks for a plan"
    assert [device.ref for device in available_devices()] == ["two/cpu0"]
    plan = make_plan("change")
    assert residents(plan) == {"one/cpu0": 0, "two/cpu0": 1}
    assert {route["device"] for route in plan.wire["routes"]} == {"two/cpu0"}
    shared = contents.read().shared
    (mine,) = contents.node_config(one.pk, shared).plan.devices
    assert mine.may_stay == () and mine.residents == (), "it keeps nothing loaded"
    other = Node.objects.get(name="two")
    assert contents.node_config(other.pk, shared).plan.devices[0].may_stay == (world.pk,)

    assert not Node.objects.get(name="one").drained
    Device.objects.filter(node=one).update(warm=[])
    assert Node.objects.get(name="one").drained

    requested()
    members.uncordon(one)
    assert requested()
    assert len(make_plan("change").problem["devices"]) == 2 and not Node.objects.get(name="one").drained


def test_the_last_node_goes_on_serving(world):
    for one in Node.objects.all():
        members.cordon(one, force=True)
    before = Plan.objects.first().pk
    assert make_plan("change") is None and Plan.objects.first().pk == before


def _cordon(client: Client, name: str, **how):
    return client.post(f"/api/v1/nodes/{name}/cordon/", how, content_type="application/json")


def test_the_last_node_of_an_application_is_cordoned_by_force_alone(world):
    client = Client(headers={"authorization": bearer(account("operator", "operator"))})
    Device.objects.filter(node__name="two").update(type="cpu-other-1c")
    assert _cordon(client, "two").status_code == 200, "nothing runs on its type"
    client.delete("/api/v1/nodes/two/cordon/")
    refused = _cordon(client, "one")
    assert refused.status_code == 409 and "digits" in refused.json()["detail"] and "force" in refused.json()["detail"]
    assert Node.objects.get(name="one").cordoned_at is None
    browser = Client()
    browser.force_login(User.objects.get(username="operator"))
    assert "No other node has a usable device for digits" in browser.get("/nodes/").content.decode()
    forced = _cordon(client, "one", force=True)
    assert forced.json()["cordoned_at"]
    assert _cordon(client, "one").status_code == 200, "again changes nothing"


def test_the_last_node_of_an_application_is_revoked_by_force_alone(world):
    def revoke(name: str, **how):
        return client.post(f"/api/v1/nodes/{name}/revoke/", how, content_type="application/json")

    client = Client(headers={"authorization": bearer(account("operator", "operator"))})
    Device.objects.filter(node__name="two").update(type="another-type")
    refused = revoke("one")
    assert refused.status_code == 409 and "digits" in refused.json()["detail"]
    assert "force: true to revoke it" in refused.json()["detail"]
    assert Node.objects.get(name="one").state == "approved"
    browser = Client()
    browser.force_login(User.objects.get(username="operator"))
    page = browser.get("/nodes/").content.decode()
    assert (
        "Revoke one? No other node has a usable device for digits" in page and "Revoke two? Its 1 device leaves" in page
    )
    assert revoke("two").json()["state"] == "revoked", "nothing runs on its type"
    assert revoke("one", force="often").status_code == 400
    assert revoke("one", force=True).json()["state"] == "revoked"
    assert revoke("one").json()["state"] == "revoked", "again changes nothing"


@pytest.mark.parametrize("lost", [{"node__seen_s": 0.0}, {"state": Device.State.DOWN}, {"node__state": "revoked"}])
def test_a_device_that_cannot_serve_does_not_count_as_another_one(world, lost):
    other = Device.objects.get(ref="two/cpu0")
    for name, value in lost.items():
        row = other.node if name.startswith("node__") else other
        setattr(row, name.removeprefix("node__"), value)
        row.save()
    with pytest.raises(Conflict, match="digits"):
        members.cordon(Node.objects.get(name="one"))


def test_a_cordon_with_an_end_ends_by_itself(world):
    """As one that a backup brought back."""
    client = Client(headers={"authorization": bearer(account("operator", "operator"))})
    wrong = _cordon(client, "one", seconds=604801)
    assert wrong.status_code == 400 and "604800" in wrong.json()["detail"]
    answer = _cordon(client, "one", seconds=600).json()
    assert answer["cordoned_until"] > answer["cordoned_at"]
    assert upkeep.end_cordons() == 0
    make_plan("change")
    Node.objects.filter(name="one").update(cordoned_until=timezone.now() - timedelta(seconds=1))
    requested()
    assert upkeep.end_cordons() == 1 and Node.objects.get(name="one").cordoned_at is None
    assert requested()


def test_an_operators_cordon_has_no_end(world):
    one = members.cordon(Node.objects.get(name="one"))
    assert members.cordon(one, seconds=1).cordoned_until is None, "it was cordoned without an end before"
    two = members.cordon(Node.objects.get(name="two"), seconds=1, force=True)
    assert members.cordon(two).cordoned_until is None and members.cordon(two).cordoned_at


def test_nothing_is_profiled_on_a_cordoned_node(world):
    members.cordon(Node.objects.get(name="one"))
    ProfileJob.objects.create(variant=variant(application("a"), "v", 80, 5), device_type=KIND)
    assert dispatch() == 1
    assert ProfileJob.objects.get().device.ref == "two/cpu0"


def test_rest_and_console_cordon_and_show_it(world):
    client = Client(headers={"authorization": bearer(account("operator", "operator"))})
    answer = _cordon(client, "one").json()
    assert answer["cordoned_at"] and not answer["drained"]
    assert _cordon(client, "one").json()["cordoned_at"] == answer["cordoned_at"]
    browser = signed_in("viewer")
    page = browser.get("/nodes/").content.decode()
    assert 'data-testid="cordoned-one"' in page and 'data-testid="uncordon-one"' not in page
    Device.objects.update(warm=[])
    assert client.get("/api/v1/nodes/one/").json()["drained"]
    assert client.delete("/api/v1/nodes/one/cordon/").json()["cordoned_at"] is None
    browser.force_login(User.objects.get(username="operator"))
    assert 'data-testid="cordon-one"' in browser.get("/nodes/").content.decode()
