"""Plans go by which gateways reach which devices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from registry.models import Device, Gateway, Node
from scheduler.control.assemble import available_devices
from scheduler.control.planner import make_plan
from tests.accounts import signed_in
from tests.control.connections import Connection, token
from tests.control.linked import until
from tests.control.world import KIND, application, node, requested, variant
from workers import machine
from workers.protocol.specs import DeviceInfo

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def boxes() -> None:
    near, far = node("near", devices=1), node("far", devices=2)
    Node.objects.filter(pk=near.pk).update(machine="a")
    Node.objects.filter(pk=far.pk).update(machine="b")
    Gateway.objects.create(name="front", machine="a", state="approved")


def available() -> set[str]:
    return {device.ref for device in available_devices()}


def test_a_second_boxs_devices_are_not_planned_on_until_a_gateway_runs_there():
    boxes()
    variant(application(), "best", 90, 5)
    assert available() == {"near/cpu0"}
    plan = make_plan("periodic")
    assert [device["id"] for device in plan.problem["devices"]] == ["near/cpu0"]
    Gateway.objects.create(name="second", machine="b", state="approved")
    assert available() == {"near/cpu0", "far/cpu0", "far/cpu1"}


def test_a_gateway_whose_link_is_down_still_counts_and_one_that_waits_does_not():
    boxes()
    Gateway.objects.update(channel="", seen_s=None)
    assert available() == {"near/cpu0"}
    Gateway.objects.update(state="pending")
    assert len(available()) == 3, "without any gateway nothing is known"


def test_an_endpoint_that_no_gateway_has_a_transport_for_is_not_planned_on():
    boxes()
    Device.objects.filter(ref="near/cpu0").update(endpoint="carrier-pigeon://near/cpu0")
    assert available() == set()


def test_members_of_earlier_releases_are_planned_on_as_before():
    boxes()
    Node.objects.update(machine="")
    assert len(available()) == 3
    Gateway.objects.update(machine="")
    Node.objects.update(machine="b")
    assert len(available()) == 3


async def test_a_gateway_that_joins_on_a_second_box_has_its_devices_planned_on():
    await sync_to_async(boxes)()
    await sync_to_async(lambda: variant(application(), "best", 90, 5))()
    await sync_to_async(make_plan)("periodic")
    await sync_to_async(requested)()
    gateway = Connection("gateway", await token())
    await gateway.join("second", machine="b")
    await until(sync_to_async(requested), "a request for a plan")
    assert (await sync_to_async(Gateway.objects.get)(name="second")).machine == "b"
    info = DeviceInfo("third/cpu0", "cpu", KIND, "a core", (0,), None, 2**30, "unix:/third")
    third = Connection("node", await token("other"))
    await third.join("third", machine="c", devices=(info,))
    await until(sync_to_async(lambda: Device.objects.filter(ref="third/cpu0").exists()), "the device")
    assert (await sync_to_async(Node.objects.get)(name="third")).machine == "c"
    await third.leave()
    await gateway.leave()


def test_the_nodes_page_says_which_devices_are_not_reached_and_what_to_do():
    boxes()
    page = re.sub(r"\s+", " ", signed_in("viewer").get("/nodes/").content.decode())
    assert page.count("not reachable from any gateway: ") == 2
    assert 'data-testid="unreachable-far/cpu0"' in page and 'data-testid="unreachable-near/cpu0"' not in page
    assert "set NEREUS_EXECUTORS on node far, start a gateway beside it, or revoke the node" in page


def test_processes_of_one_box_have_one_identity(tmp_path):
    assert machine.identity() == machine.identity() and 30 < len(machine.identity()) <= 64
    assert machine.identity(tmp_path / "absent") == ""
    Path(tmp_path / "other").write_text("1e7d-2\n")
    assert machine.identity(tmp_path / "other", tmp_path).startswith("1e7d2-")
