"""Devices, nodes and gateways that need a person. All is real but time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from registry import clock, members
from registry.access.roles import AccessRole
from registry.errors import Conflict
from registry.models import Device, Gateway, JoinToken, Node, Profile
from scheduler.members import devices, reaching
from tests.control.world import KIND, node, seen
from tests.repairs.looks import found, plan, report
from workers.protocol.specs import DeviceInfo, Reach

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


def test_a_cluster_that_works_needs_nobody(world, lasting):
    plan()
    assert lasting(3600) == {}


def info(number: int) -> DeviceInfo:
    return DeviceInfo(
        id=f"box/cpu{number}",
        kind="cpu",
        type=KIND,
        description="",
        cores=(number,),
        gpu_index=None,
        memory_bytes=2**30,
        endpoint=f"unix:/run/box-cpu{number}.sock",
    )


def test_a_lost_device_says_since_when_and_what_it_costs(world, lasting):
    plan(accuracy=98.2)
    before = timezone.now()
    report(world["node"], "box/cpu1", "down", "exited with signal 9")
    plan(accuracy=93.1)
    assert "device:box/cpu1" not in found(), "an executor may be back at once"
    repair = lasting(11)["device:box/cpu1"]
    assert repair.severity == "error" and before <= repair.since <= timezone.now() and not repair.at_least
    assert repair.effect == ("50% of this appliance's capacity is lost. Planned accuracy is 93.1%, 98.2% before.")
    assert "exited with signal 9" in repair.action.text
    # What the node says further does not change since when it is lost.
    report(world["node"], "box/cpu1", "starting")
    assert lasting(61)["device:box/cpu1"].since == repair.since
    report(world["node"], "box/cpu1", "up")
    assert found() == {}


def test_a_device_of_another_type_counts_by_what_it_can_serve(world, lasting):
    slow = Device.objects.create(node=world["node"], ref="box/gpu0", kind="gpu", type="slow", state="up")
    profile = Profile.objects.create(variant=world["big"], device_type="slow", load_s=1, memory_bytes=1)
    profile.latencies.create(batch=1, p50_ms=8, p95_ms=8, mean_ms=8, samples=20)
    Profile.objects.filter(variant=world["big"], device_type=KIND).delete()
    report(world["node"], slow.ref, "down")
    repair = lasting(11)["device:box/gpu0"]
    # 125 items/s beside twice 1000.
    assert "6% of this appliance's capacity" in repair.effect
    assert "1 of 2 variants cannot run" in repair.effect


def test_a_device_that_its_node_has_no_more_is_down_until_it_is_forgotten(world, lasting):
    changed = Device.objects.get(ref="box/cpu0").changed
    devices.sync(world["node"], [info(0)])
    assert Device.objects.get(ref="box/cpu0").changed == changed
    repair = lasting(11)["device:box/cpu1"]
    assert "gone from its node" in repair.title and repair.action.label == "Forget"
    with pytest.raises(Conflict, match="still has it"):
        members.forget_device(Device.objects.get(ref="box/cpu0"))
    members.forget_device(Device.objects.get(ref="box/cpu1"))
    assert found() == {}


def test_a_device_that_comes_back_is_no_repair(world, lasting):
    devices.sync(world["node"], [])
    assert len(lasting(11)) == 2
    devices.sync(world["node"], [info(0), info(1)])
    for i in (0, 1):
        report(world["node"], f"box/cpu{i}", "up")
    assert found() == {}


def test_a_node_that_left_is_one_repair_with_all_its_devices(world, lasting, later):
    other = node("other", devices=2)
    Node.objects.filter(pk=other.pk).update(**seen(ago=0), channel="")
    last_seen = Node.objects.get(pk=other.pk).last_seen
    assert "node:other" not in found(), "it may be reconnecting"
    repair = lasting(31)["node:other"]
    assert repair.effect == "2 devices with 50% of this appliance's capacity." and repair.since == last_seen
    assert set(found()) == {"node:other"}
    assert (repair.action.method, repair.action.url) == ("DELETE", "/api/v1/nodes/other/")
    assert repair.action.permitted(AccessRole.OPERATOR) and not repair.action.permitted(AccessRole.OWNER)
    Node.objects.filter(pk=other.pk).update(**seen(), channel="c")
    assert found() == {}


def test_a_gateway_that_left(world, lasting):
    Gateway.objects.create(name="front", state="approved", channel="", address="http://10.0.0.5:8000")
    repair = lasting(31)["gateway:front"]
    assert repair.effect.startswith("Gateways without new plans and keys: 1 of 1.") and "10.0.0.5" in repair.effect


def test_a_member_that_waits_is_approved_by_one_button(world):
    stranger = Gateway.objects.create(name="shed", state="pending", channel="c")
    repair = found()["waiting:gateway:shed"]
    assert repair.since == stranger.created and repair.action.url == "/api/v1/gateways/shed/approve/"
    assert repair.severity == "warning"


def test_a_member_that_is_behind(world):
    since = timezone.now() - timedelta(minutes=5)
    Device.objects.update(plan_version=plan().pk)
    for _ in range(3):
        plan()
    Node.objects.update(behind_since=since)
    repair = found()["behind:node:box"]
    assert repair.since == since and repair.effect.startswith("3 plans behind. It still uses an older plan")


def test_a_certificate_that_nobody_renews(world, lasting):
    now = timezone.now()
    Node.objects.update(key_hash="a" * 64, certificate_until=now + timedelta(days=11))
    assert lasting(300) == {}
    ends = now + timedelta(days=9)
    Node.objects.update(certificate_until=ends)
    assert found() == {}, "a clock that was set is no reason yet"
    repair = lasting(121)["certificate:node:box"]
    assert repair.severity == "warning" and repair.title == "The certificate of node box is not renewed"
    assert f"It ends at {ends:%Y-%m-%d %H:%M} UTC" in repair.effect and "Read its log" in repair.action.text
    Node.objects.update(certificate_lapsed=True, channel="")
    repair = found()["certificate:node:box"]
    assert repair.severity == "error" and "has ended" in repair.title and repair.action.text.startswith("Connect it")
    Node.objects.update(certificate_until=now + timedelta(days=30), certificate_lapsed=False)
    assert "certificate:node:box" not in found()


def test_a_claim_is_accepted_by_one_button(world):
    token = JoinToken.objects.create(name="rack", token_hash="x" * 64, expires=timezone.now() + timedelta(days=1))
    since = timezone.now()
    claim = {"claim_channel": "c2", "claim_with": token, "claim_address": "10.0.0.9", "claim_s": clock.steady()}
    Node.objects.update(claimed_at=since, **claim)
    repair = found()["claim:node:box"]
    assert repair.since == since and "10.0.0.9 with join token rack" in repair.effect
    assert (repair.action.method, repair.action.url) == ("POST", "/api/v1/nodes/box/claim/")
    Node.objects.update(claim_channel="")
    assert found() == {}


def test_devices_that_no_gateway_reaches(world):
    Gateway.objects.create(name="front", state="approved", channel="c", machine="m1", **seen())
    Node.objects.update(machine="m2")
    repair = found()["unreachable:box"]
    assert repair.effect == "2 devices with 100% of this appliance's capacity left out of plans."
    Node.objects.update(machine="m1")
    assert found() == {}


def test_devices_that_no_core_gets_through_to(world):
    Gateway.objects.create(name="front", state="approved", channel="c", **seen())
    report = Reach(reached=("box/cpu1",), unreached={"box/cpu0": 9.0})
    reaching.report(Gateway.objects.get().pk, report)
    repair = found()["unreachable:box"]
    assert repair.effect == "1 device with 50% of this appliance's capacity left out of plans."
    assert "Check the network and firewalls between front and box" in repair.action.text
    assert repair.since == Device.objects.get(ref="box/cpu0").unreached_since
    reaching.report(Gateway.objects.get().pk, Reach(reached=("box/cpu0", "box/cpu1")))
    assert found() == {}


def test_a_node_that_was_left_cordoned(world):
    Node.objects.update(cordoned_at=timezone.now() - timedelta(minutes=30))
    assert found() == {}
    Node.objects.update(cordoned_at=timezone.now() - timedelta(hours=2))
    repair = found()["cordoned:box"]
    assert repair.effect == "Plans leave out 100% of this appliance's capacity."
    assert (repair.action.method, repair.action.url) == ("DELETE", "/api/v1/nodes/box/cordon/")


def test_a_join_token_without_an_end_is_for_operators(world):
    made = JoinToken.objects.create(name="rack", token_hash="x" * 64, auto_approve=True)
    JoinToken.objects.create(name="local", token_hash="y" * 64, own_box=True)
    JoinToken.objects.create(name="once", token_hash="z" * 64, uses=1)
    repair = found()["join_token:rack"]
    assert set(found()) == {"join_token:rack"} and repair.since == made.created
    assert (repair.action.method, repair.action.url) == ("DELETE", "/api/v1/join-tokens/rack/")
    assert repair.visible(AccessRole.OPERATOR) and not repair.visible(AccessRole.VIEWER)
