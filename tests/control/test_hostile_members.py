"""Hostile nodes and gateways at links' real end: nothing that cannot be true is stored or believed."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from asgiref.sync import sync_to_async

from registry import profiling
from registry.models import Application, Device, Fault, Node, Profile, ProfileJob, ProfileLatency, Variant
from scheduler import live, telemetry
from scheduler.control import planner
from scheduler.control.demand import estimates
from scheduler.history import recording
from scheduler.history.models import HistoryName
from scheduler.members.intake import BAD_BURST, STATISTICS_BURST
from scheduler.profiling import dispatch
from tests.control.connections import Connection, token
from tests.control.honest import COUNTS, DEVICE_SECOND, DONE, INFO, STATE
from tests.control.linked import until
from tests.control.world import KIND, application, requested, variant
from tests.control.world import node as world_node
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

objects = sync_to_async


async def hostile(kind: str) -> Connection:
    """A member that was admitted, with a device and an application that has a profile."""
    secret = await token()
    await objects(lambda: variant(application(), "best", 90, 5))()
    connection = Connection(kind, secret)
    fields = {"devices": (INFO,)} if kind == "node" else {}
    assert isinstance(await connection.join("box" if kind == "node" else "front", **fields), control.Joined)
    await connection.received(control.NodeConfig if kind == "node" else control.GatewayConfig)
    return connection


def seconds(rows) -> dict:
    counts = {"digits": {"arrived": 1, "arrived_rows": rows}}
    return {"type": "gateway_stats", "applications": counts, "ready": True}


async def test_impossible_arrivals_are_skipped_and_planning_goes_on(later):
    gateway = await hostile("gateway")
    for rows in (-(10**12), 10**400, 10**18, 1e999, "many"):
        await gateway.say(json.dumps({"v": 1, **seconds(rows)}).replace("Infinity", "1e999"))
    await gateway.say(control.GatewayStats(applications={"digits": COUNTS, "nobody": COUNTS}, ready=True))
    stored = await until(objects(lambda: telemetry.gateway_seconds(60)), "the good second")
    assert [list(second["applications"]) for second in stored] == [["digits"]], (
        "applications that do not exist are left out"
    )
    arrivals = telemetry.sum_arrivals(stored)
    demand = estimates(arrivals, ["digits"], int(time.time()) + 5).planned
    assert 0 < demand["digits"] < 1000
    await objects(world_node)("other")
    assert await objects(planner.make_plan)("periodic") is not None
    await gateway.leave()


async def test_names_of_no_registered_variant_are_not_stored():
    gateway = await hostile("gateway")
    for second in range(3):
        names = {"best": 1} | {f"made-up-{second}-{number}": 1 for number in range(50)}
        counts = msgspec.structs.replace(COUNTS, by_variant=names)
        await gateway.say(control.GatewayStats(applications={"digits": counts, "nobody": counts}, ready=True))
    stored = await until(
        objects(lambda: (found := telemetry.gateway_seconds(60)) and len(found) == 3 and found), "three seconds"
    )
    assert [second["applications"]["digits"]["by_variant"] for second in stored] == [{"best": 1}] * 3
    await objects(recording.record)()
    assert await objects(lambda: set(HistoryName.objects.values_list("name", flat=True)))() == {"digits", "digits/best"}
    await gateway.leave()


@pytest.mark.parametrize(
    "message",
    [
        {"type": "device_states", "devices": [{"device": "box/cpu0", "state": "banana"}]},
        {"type": "node_stats", "devices": [msgspec.to_builtins(DEVICE_SECOND) | {"memory_bytes": 2**70}]},
    ],
)
async def test_what_cannot_be_of_a_device_is_skipped_and_the_link_goes_on(message):
    node = await hostile("node")
    await node.say(message)
    await node.say(control.DeviceStates(devices=(STATE,)))
    await until(objects(lambda: Device.objects.filter(state="up", warm=[1]).exists()), "the good state")
    assert (await objects(Device.objects.get)()).plan_version == 0
    await node.leave()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("kind", "k" * 500, "$.devices[0].kind"),
        ("id", "box/" + "d" * 120, "<= 120"),
        ("endpoint", "unix:/\0", "regex"),
        ("cores", [-1], "$.devices[0].cores[0]"),
    ],
)
async def test_a_join_whose_device_cannot_be_stored_is_refused_by_name(field, value, says):
    connection = Connection("node", await token())
    await connection.open()
    await connection.say({"type": "join_node", "name": "box", "devices": [msgspec.to_builtins(INFO) | {field: value}]})
    code, reason = await connection.closed()
    assert code == control.CLOSE_MALFORMED and says in reason
    assert not await objects(Node.objects.exists)()


async def test_a_profile_that_cannot_be_is_not_stored():
    node = await hostile("node")

    def order() -> int:
        Device.objects.update(state="up")
        made = variant(Application.objects.get(), "new", 95, 5, state=Variant.State.PROFILING)
        made.profiles.all().delete()
        (job,) = profiling.order(made, "registration", [KIND])
        assert dispatch.dispatch() == 1
        return job.pk

    job = await objects(order)()
    await node.received(control.ProfileOrder)
    done = msgspec.to_builtins(DONE) | {"v": 1, "type": "profile_done", "job": job}
    point = done["points"][0]
    for bad in (
        {"accuracy": 1000},
        {"load_s": -1},
        {"memory_bytes": 2**70},
        {"points": [point | {"p50_s": -0.1}]},
        {"points": [point | {"batch": 2**31}]},
        {"points": [point | {"samples": 2**31}]},
    ):
        await node.say(done | bad)
    await node.say(control.ProfileProgress(job=job, phase="meas\0uring very slowly", done=0.5))
    await until(objects(lambda: ProfileJob.objects.filter(progress=0.5).exists()), "the progress")
    running = await objects(ProfileJob.objects.get)(pk=job)
    assert running.state == "running" and running.phase == "measuring ve"
    assert not await objects(Profile.objects.filter(variant__name="new").exists)()
    await node.say(done | {"accuracy": None})
    await until(objects(lambda: ProfileJob.objects.filter(pk=job, state="done").exists()), "the result")
    assert not await objects(ProfileLatency.objects.filter(p50_ms__lt=0).exists)()
    await node.leave()


async def test_texts_are_stored_without_what_postgresql_does_not_store():
    node = await hostile("node")
    pk = (await objects(Variant.objects.get)()).pk
    await node.say(control.FaultReport(device="box/cpu0", variant=pk, cause="crashed", detail="a\0b" + "c" * 9000))
    await until(objects(Fault.objects.exists), "the fault")
    detail = (await objects(Fault.objects.get)()).detail
    assert detail.startswith("abccc") and len(detail) == 2000
    await node.leave()


async def test_too_many_bad_messages_end_the_link_with_a_reason():
    gateway = await hostile("gateway")
    for _ in range(int(BAD_BURST) + 1):
        await gateway.say(seconds(-1))
    code, reason = await gateway.closed()
    assert code == control.CLOSE_MALFORMED and "arrived_rows" in reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[" * 100_000,
        '{"v": 1, "type": "joined"}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
async def test_what_is_no_message_ends_the_link(text):
    gateway = await hostile("gateway")
    await gateway.say(text)
    if text.startswith(("{", "[")):
        # Another type than expected is one bad message, and skipped.
        await gateway.say("{")
    code, reason = await gateway.closed()
    assert code == control.CLOSE_MALFORMED and "not understood" in reason


async def test_statistics_come_once_a_second_and_no_more_often():
    gateway = await hostile("gateway")
    second = control.GatewayStats(applications={"digits": COUNTS}, ready=True)
    for _ in range(int(STATISTICS_BURST) + 200):
        await gateway.say(second)
    await gateway.say(control.Overload(device="", application="digits", arrived=5, refused=5))
    await until(objects(requested), "all of it is dealt with")
    kept = await objects(live.client().xlen)(telemetry.GATEWAY_STREAM)
    assert kept < STATISTICS_BURST + 200
    await gateway.leave()


def test_streams_are_bounded_in_bytes(clean_redis, monkeypatch):
    monkeypatch.setattr(telemetry, "STREAM_BYTES", 2_000_000)
    monkeypatch.setattr(telemetry, "WEIGHED_EVERY", 1)
    second = {"t": int(time.time()), "gateway": "g", "applications": {}, "pad": "x" * 100_000}
    for _ in range(100):
        telemetry.record(telemetry.GATEWAY_STREAM, second)
    assert clean_redis.memory_usage(telemetry.GATEWAY_STREAM) < 2_500_000
    assert 5 < clean_redis.xlen(telemetry.GATEWAY_STREAM) < 30
    with pytest.raises(ValueError, match="at most 393216 characters"):
        telemetry.record(telemetry.GATEWAY_STREAM, second | {"pad": "x" * 400_000})
