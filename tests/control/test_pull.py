"""Members get what they should hold, also where the word of a change is lost."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from datetime import timedelta

import msgspec
import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError
from django.utils import timezone

from registry import members, profiling
from registry.models import ApiKey, Device, Gateway, Node, ProfileJob, Variant
from scheduler import live
from scheduler.members import admission, configurations, contents, lag, standing
from scheduler.members.link import AcceptedLink
from scheduler.members.node import NodeLink
from scheduler.models import Plan
from scheduler.profiling import dispatch
from tests.control.linked import LinkedGateway, cluster, join_token, served, until
from tests.control.world import application, variant
from workers.protocol import control, specs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def wire(version: int, *devices: str) -> dict:
    plans = tuple(specs.DevicePlan(device, f"unix:/run/{device}", ()) for device in devices)
    return msgspec.to_builtins(specs.PlanSpec(version, plans))


def make_plan() -> int:
    problem = {"devices": [{"id": "box/cpu0"}]}
    plan = Plan.objects.create(
        trigger="manual", stack="nereus", problem=problem, allocation={}, wire={}, status="optimal"
    )
    Plan.objects.filter(pk=plan.pk).update(wire=wire(plan.pk, "box/cpu0"))
    return plan.pk


def make_key() -> str:
    key, _ = members.create_api_key("client")
    return key.key_hash


@pytest.fixture
def nobody_says(monkeypatch):
    """Lose every word that something changed."""
    monkeypatch.setattr(live.client(), "publish", lambda *_: 0)
    monkeypatch.setattr(configurations, "REREAD_S", 0.3)


@pytest.fixture
def nobody_looks(monkeypatch):
    """Read the database only where somebody says that something changed."""
    monkeypatch.setattr(configurations, "REREAD_S", 1e9)


async def test_plans_keys_and_deletions_reach_members_at_once_also_after_redis_was_emptied(
    home, clean_redis, nobody_looks
):
    async with cluster(home) as (gateway, node):
        clean_redis.flushall()
        version, key = await sync_to_async(make_plan)(), await sync_to_async(make_key)()
        await sync_to_async(live.members_changed)()
        await until(lambda: gateway.held.plan.version == version, "the plan at the gateway")
        await until(lambda: node.config.plan.version == version, "the plan at the node")
        assert [device.device for device in node.config.plan.devices] == ["box/cpu0"]
        await until(lambda: key in gateway.held.key_hashes, "the key at the gateway")
        await sync_to_async(lambda: members.delete_secret(ApiKey.objects.get()))()
        await until(lambda: key not in gateway.held.key_hashes, "the key's deletion at the gateway")
        hashes = [config.hash for config in gateway.received]
        assert all(earlier != later for earlier, later in itertools.pairwise(hashes)), "only what is new is sent"


async def test_members_hear_of_changes_again_after_redis_was_away(home, clean_redis, nobody_looks):
    async with cluster(home) as (gateway, _):
        clean_redis.client_kill_filter(_type="pubsub")
        version = await sync_to_async(make_plan)()
        await until(lambda: gateway.held.plan.version == version, "the plan")


async def test_nobody_says_that_something_changed_and_yet_members_get_it(home, nobody_says):
    async with cluster(home) as (gateway, node):
        version = await sync_to_async(make_plan)()
        await sync_to_async(application)()
        await until(lambda: gateway.held.plan.version == node.config.plan.version == version, "the plan")
        await until(lambda: gateway.held.applications and node.config.applications, "the application")
        # Once they hold it nobody sends it again; what was said before may still be on its way.
        for _ in range(5):
            received = len(gateway.received)
            await asyncio.sleep(2 * configurations.REREAD_S)
            if len(gateway.received) == received:
                break
        assert len(gateway.received) == received


async def test_an_approval_and_a_revocation_arrive_though_nobody_says_so(home, nobody_says):
    await join_token(auto_approve=False)
    async with served() as port, LinkedGateway(home, port).running() as gateway:
        await until(lambda: gateway.link.state == "pending", "the wait for approval")
        await sync_to_async(Gateway.objects.update)(state=Gateway.State.APPROVED)
        await until(lambda: gateway.held, "the configuration of an approved gateway")
        await sync_to_async(Gateway.objects.update)(state=Gateway.State.REVOKED)
        await until(lambda: gateway.link.state == "unauthorized", "the revocation")


def order_profile() -> ProfileJob:
    """A job that a device of ``box`` has, although its order went nowhere."""
    device = Device.objects.get()
    made = variant(application(), "new", 95, 5, state=Variant.State.PROFILING)
    made.profiles.all().delete()
    (job,) = profiling.order(made, "registration", [device.type])
    assert dispatch.dispatch() == 1
    return ProfileJob.objects.get(pk=job.pk)


@pytest.mark.parametrize("lost", [False, True])
async def test_a_profile_order_reaches_its_node_also_where_the_word_is_lost(home, monkeypatch, lost):
    if lost:
        monkeypatch.setattr(live.client(), "publish", lambda *_: 0)
        monkeypatch.setattr(configurations, "REREAD_S", 0.3)
        monkeypatch.setattr(NodeLink, "follow", AcceptedLink.follow)
    else:
        monkeypatch.setattr(configurations, "REREAD_S", 1e9)
    async with cluster(home):
        await until(sync_to_async(lambda: Device.objects.filter(state="up").exists()), "the node's device")
        job = await sync_to_async(order_profile)()
        # The node reports on it at once: it cannot fetch this model.
        await until(sync_to_async(lambda: ProfileJob.objects.filter(state="failed").exists()), "the node's report")
        await sync_to_async(job.refresh_from_db)()
        assert job.attempts == 1 and "fetching failed" in job.detail


async def test_a_member_that_stays_behind_is_shown_until_it_has_caught_up(home, monkeypatch):
    monkeypatch.setattr(lag, "WARN_AFTER_S", 0.5)
    monkeypatch.setattr(lag, "ANSWER_EVERY_S", 0.5)
    async with cluster(home) as (gateway, _):
        events: list[dict] = []
        heard = asyncio.Event()

        async def listen():
            async for text in live.listen(live.EVENTS):
                heard.set()
                message = json.loads(text or "[]")
                if isinstance(message, dict) and message["event"] == "member" and message["data"]["name"] == "front":
                    events.append(message["data"])

        listening = asyncio.create_task(listen())
        await heard.wait()
        gateway.stuck = True
        before, told = time.time(), len(events)
        version = await sync_to_async(make_plan)()
        await until(lambda: len(events) > told, "the warning")
        assert (events[-1]["kind"], events[-1]["connected"]) == ("gateway", True)
        shown = await sync_to_async(Gateway.objects.get)()
        assert shown.behind and before <= shown.behind_since.timestamp() <= time.time()
        told = len(events)
        gateway.stuck = False
        await until(lambda: gateway.held.plan.version == version, "the plan once it is taken over")
        await until(lambda: len(events) > told, "the end of the warning")
        assert not (await sync_to_async(Gateway.objects.get)()).behind
        await live.cancel(listening)


def test_what_a_member_was_behind_is_forgotten_when_it_joins_anew(clean_redis):
    now = timezone.now()
    box = Node.objects.create(name="box", state=Node.State.APPROVED, channel="old", behind_since=now)
    admission.admit(Node, admission.Identity(box, None), "box", "new")
    assert Node.objects.get().behind_since is None
    standing.set_behind(Node, box.pk, "old", now)  # the older connection
    assert Node.objects.get().behind_since is None


def node_of(state: str, **fields) -> ProfileJob:
    box = Node.objects.create(name="box", state=Node.State.APPROVED, channel="c")
    device = Device.objects.create(node=box, ref="box/cpu0", kind="cpu", type="cpu-test-1c", state="up")
    made = variant(application(), "new", 95, 5)
    return ProfileJob.objects.create(variant=made, device_type=device.type, device=device, state=state, **fields)


def test_a_job_that_is_not_the_nodes_any_more_is_cancelled_there():
    job = node_of("cancelled")
    assert dispatch.reconcile(job.device.node, [job.pk]) == [control.ProfileCancel(job=job.pk)]


def test_an_order_that_may_still_be_on_its_way_is_not_repeated():
    now = timezone.now()
    job = node_of("running", started=now)
    assert dispatch.reconcile(job.device.node, []) == []
    for started in (now - timedelta(seconds=30), now + timedelta(hours=25)):
        ProfileJob.objects.update(started=started)
        (order,) = dispatch.reconcile(job.device.node, [])
        assert isinstance(order, control.ProfileOrder) and order.job == job.pk
    assert dispatch.reconcile(job.device.node, [job.pk]) == []


def test_a_job_that_a_restarted_node_lost_is_an_attempt():
    now = timezone.now()
    job = node_of("running", started=now, heard=now, attempts=3)
    assert dispatch.reconcile(job.device.node, []) == []
    job.refresh_from_db()
    assert job.state == "failed" and "may have restarted" in job.detail


async def test_reports_cost_no_reads_of_their_own(home, monkeypatch):
    """A join reads the member's first configuration, and a gateway's all of them."""
    reads = []
    read = contents.read
    monkeypatch.setattr(configurations, "REREAD_S", 1e9)
    monkeypatch.setattr(contents, "read", lambda: reads.append(1) or read())
    async with cluster(home) as (gateway, _):
        stats = control.GatewayStats(applications={}, ready=True, plan_version=0, config_hash=gateway.held.hash)
        for _ in range(200):
            gateway.link.send(stats)
        await until(lambda: not len(gateway.link._outbox), "all reports sent")
        await asyncio.sleep(1)
    assert 0 < len(reads) <= 4


async def test_a_push_to_all_is_answered_with_few_reads(monkeypatch):
    """Connections that are pushed to while a read runs share the next one."""
    reads = []
    read = contents.read

    def slow():
        reads.append(1)
        time.sleep(0.2)
        return read()

    monkeypatch.setattr(contents, "read", slow)
    shared = configurations.Configurations()
    first = asyncio.create_task(shared.gateway(time.monotonic()))
    await until(lambda: reads, "the first read has begun")
    await sync_to_async(make_key)()
    found = await asyncio.gather(*(shared.gateway(time.monotonic()) for _ in range(100)))
    await first
    assert len(reads) == 2
    assert all(len(config.key_hashes) == 1 for config in found)


async def test_while_the_database_is_away_members_are_compared_with_what_is_known(monkeypatch):
    shared = configurations.Configurations()
    known = await shared.gateway()

    def away():
        raise DatabaseError("away")

    monkeypatch.setattr(contents, "read", away)
    with pytest.raises(DatabaseError):
        await shared.gateway(time.monotonic())
    assert await shared.gateway() is known


def test_a_member_that_was_written_off_is_connected_again_by_its_next_report():
    box = Node.objects.create(name="box", state=Node.State.APPROVED, channel="")
    standing.seen_all([(Node, box.pk, "mine")])
    assert Node.objects.get().channel == "mine" and Node.objects.get().connected
    standing.seen_all([(Node, box.pk, "older")])
    assert Node.objects.get().channel == "mine"


def test_equal_configurations_have_equal_hashes_whatever_the_order_of_names():
    def config(**padding):
        spec = specs.ApplicationSpec("a", 0.1, specs.Signature((), ()), padding=padding)
        return control.with_hash(control.GatewayConfig(applications=(spec,), key_hashes=(), plan=specs.PlanSpec(1)))

    assert config(x=1.0, y=2.0).hash == config(y=2.0, x=1.0).hash != config(x=1.0, y=3.0).hash
    once = config(x=1.0)
    assert control.with_hash(once) == once
    assert control.decode_to_gateway(control.encode(once)) == once


def test_reports_of_older_members_are_still_understood():
    node = control.decode_from_node('{"v": 1, "type": "node_stats", "devices": []}')
    gateway = control.decode_from_gateway('{"v": 1, "type": "gateway_stats", "applications": {}, "ready": true}')
    for stats in (node, gateway):
        assert stats.config_hash is None and stats.plan_version is None
    assert node.jobs is None
