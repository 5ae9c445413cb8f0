"""The node daemon between a control plane and real executor processes."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.node.conftest import QUICK_LINK, QUICK_RESTART, STAND_IN, asked, running
from workers.addresses import Address
from workers.node import devices, placement, redivision
from workers.node.daemon import NodeDaemon
from workers.node.executor_process import ExecutorProcess, pid_path
from workers.node.redivision import Layout
from workers.protocol import control
from workers.protocol.specs import (
    ApplicationSpec,
    DevicePlan,
    PlanSpec,
    Resident,
    Signature,
    TensorSpec,
    ValidationSpec,
    VariantSpec,
)

APPLICATION = ApplicationSpec(
    name="digits",
    slo_s=0.1,
    signature=Signature(
        inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),),
        outputs=(TensorSpec(name="y", datatype="FP32", shape=(-1, 3)),),
    ),
)


def variant(number: int, digest: str, name: str = "") -> VariantSpec:
    return VariantSpec(id=number, name=name or f"v{number}", application="digits", digest=digest, size_bytes=10)


def config(version: int, *variants: VariantSpec, device: str = "box/cpu0", keep: tuple[str, ...] = ()):
    residents = tuple(Resident(variant=v, max_batch=8, rate=10.0, time_share=0.5, profile=()) for v in variants)
    plan = PlanSpec(version=version, devices=(DevicePlan(device=device, endpoint="", residents=residents),))
    return control.NodeConfig(applications=(APPLICATION,), plan=plan, keep=keep)


def warm(number: int, plan: int):
    """Whether a DeviceStates message says that this variant is warm under this plan."""
    return lambda message: any(d.warm == (number,) and d.plan_version == plan for d in message.devices)


@pytest.fixture
def digest(control_plane) -> str:
    return control_plane.add_blob(b"model one")


@asynccontextmanager
async def up(settings, control_plane):
    async with running(settings) as daemon:
        await control_plane.receive(control.DeviceStates)
        yield daemon


@pytest.fixture
def quick_retry(monkeypatch):
    monkeypatch.setattr(placement, "RETRY", (0.2, 0.5))


async def test_a_plan_is_fetched_applied_and_reported(settings, control_plane, digest):
    control_plane.greeting = [control.encode(config(5, variant(1, digest)))]
    async with running(settings):
        joined = await control_plane.receive(control.JoinNode)
        assert [device.id for device in joined.devices] == ["box/cpu0"]
        states = await control_plane.receive(control.DeviceStates, warm(1, 5))
        assert [(state.device, state.state) for state in states.devices] == [("box/cpu0", "up")]
        assert control_plane.blob_requests == [(digest, "Bearer secret-1")]
        stats = await control_plane.receive(control.NodeStats, lambda message: message.devices)
        assert [second.device for second in stats.devices] == ["box/cpu0"]
        overload = await control_plane.receive(control.Overload)
        assert overload == control.Overload(device="box/cpu0", application="digits", arrived=10, refused=4)
        assert await control_plane.receive(control.Drift) == control.Drift(device="box/cpu0", variant=7, ratio=1.5)


async def test_a_node_restarted_without_a_control_plane_goes_on_with_its_last_plan(settings, control_plane, digest):
    control_plane.greeting = [control.encode(config(5, variant(1, digest)))]
    async with running(settings):
        await control_plane.receive(control.DeviceStates, warm(1, 5))
    await control_plane.stop()
    async with running(settings) as daemon:
        await control_plane.until(lambda: daemon.states()[0].warm == (1,))
        assert not daemon.link.up
        control_plane.received.clear()
        control_plane.greeting = []
        await control_plane.start()
        await control_plane.receive(control.DeviceStates, warm(1, 5))
    assert control_plane.shown[-1] == "secret-1"
    assert len(control_plane.blob_requests) == 1


async def test_a_newer_plan_supersedes_one_whose_file_cannot_be_had(settings, control_plane):
    digest = control_plane.add_blob(b"model two")
    async with up(settings, control_plane):
        await control_plane.say(config(5, variant(1, "a" * 64)))
        states = await control_plane.receive(control.DeviceStates, lambda m: "HTTP 404" in m.devices[0].detail)
        assert states.devices[0].warm == ()
        await control_plane.say(config(6, variant(2, digest)))
        states = await control_plane.receive(control.DeviceStates, warm(2, 6))
        assert states.devices[0].detail == ""


async def test_a_missing_file_does_not_hold_up_the_others_and_is_tried_again(settings, control_plane, quick_retry):
    first, second = control_plane.add_blob(b"model one"), control_plane.add_blob(b"model two")
    body = control_plane.blobs.pop(second)
    async with up(settings, control_plane):
        await control_plane.say(config(5, variant(1, first), variant(2, second)))
        states = await control_plane.receive(control.DeviceStates, warm(1, 5))
        control_plane.blobs[second] = body
        states = await control_plane.receive(control.DeviceStates, lambda m: m.devices[0].warm == (1, 2))
        assert states.devices[0].detail == ""


async def test_a_device_that_a_plan_does_not_name_hosts_nothing(settings, control_plane, digest):
    async with up(settings, control_plane):
        await control_plane.say(config(5, variant(1, digest)))
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        await control_plane.say(config(6, variant(1, digest), device="elsewhere/cpu0"))
        await control_plane.receive(control.DeviceStates, lambda m: m.devices[0].plan_version == 6)
    assert asked(settings)[-1] == "apply 6 [] {}"


async def test_the_same_configuration_again_disturbs_nobody(settings, control_plane, digest):
    async with up(settings, control_plane):
        for version in (5, 5, 6):
            await control_plane.say(config(version, variant(1, digest)))
        await control_plane.receive(control.DeviceStates, warm(1, 6))
    assert [line.split()[1] for line in asked(settings) if line.startswith("apply")][-1] == "6"
    assert sum(line.startswith("apply 5") for line in asked(settings)) <= 1


async def test_nonsense_from_the_control_plane_or_on_disk_harms_nothing(settings, control_plane, digest):
    folder = settings.home / "members"
    folder.mkdir()
    (folder / "node-box-config.json").write_text('{"v": 1, "type": "node_config", "applications": 7}')
    async with up(settings, control_plane):
        for text in ("nonsense", '{"v": 1, "type": "explode"}', '{"v": 1, "type": "node_config"}'):
            await control_plane.say(text)
        await control_plane.say(config(5, variant(1, digest)))
        await control_plane.receive(control.DeviceStates, warm(1, 5))
    assert len(control_plane.shown) == 1


async def test_files_that_no_plan_needs_may_go_and_needed_ones_stay(settings, control_plane):
    one, two, kept = (control_plane.add_blob(name) for name in (b"model one", b"model two", b"kept"))
    async with running(settings) as daemon:
        daemon.cache._spare_bytes = 0
        await control_plane.receive(control.DeviceStates)
        await daemon.cache.fetch(kept)
        await control_plane.say(config(5, variant(1, one), keep=(kept,)))
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        await control_plane.say(config(6, variant(2, two), keep=(kept,)))
        await control_plane.receive(control.DeviceStates, warm(2, 6))
        await control_plane.until(lambda: daemon.cache.path(one) is None)
        assert daemon.cache.path(two) and daemon.cache.path(kept)


# --- profiling ------------------------------------------------------------------------------------------------------


def order(job: int, spec: VariantSpec, device: str = "box/cpu0", validation: ValidationSpec | None = None):
    return control.ProfileOrder(
        job=job, device=device, variant=spec, application=APPLICATION, first=True, max_batch=8, validation=validation
    )


async def test_a_profile_is_ordered_measured_and_reported(settings, control_plane):
    digest, validation = control_plane.add_blob(b"model one"), control_plane.add_blob(b"rows")
    async with up(settings, control_plane) as daemon:
        sent = []
        relay = daemon.jobs._send
        daemon.jobs._send = lambda message: (sent.append(message), relay(message))
        await control_plane.say(order(3, variant(1, digest), validation=ValidationSpec(validation, "accuracy")))
        done = await control_plane.receive(control.ProfileDone)
        assert (done.job, done.accuracy, done.validated_rows, len(done.points)) == (3, 90.0, 4, 1)
    assert "measure 3 v1 9" in asked(settings)
    phases = [message.phase for message in sent if isinstance(message, control.ProfileProgress)]
    assert phases == ["fetching", "measuring"]


@pytest.mark.parametrize(("name", "says", "retry"), [("crash", "SIGKILL", True), ("fail", "no such operator", False)])
async def test_a_job_that_fails_or_whose_executor_dies_is_reported(settings, control_plane, digest, name, says, retry):
    async with up(settings, control_plane):
        await control_plane.say(order(3, variant(1, digest, name)))
        failed = await control_plane.receive(control.ProfileFailed)
        assert (failed.job, failed.retry) == (3, retry) and says in failed.message
        await control_plane.say(order(3, variant(2, digest)))
        assert (await control_plane.receive(control.ProfileDone)).job == 3


@pytest.mark.parametrize(
    ("spec", "device", "says"),
    [
        (variant(1, "a" * 64), "box/cpu0", "fetching failed: aaaaaaaaaaaa: the control plane answered HTTP 404"),
        (variant(1, "../../x"), "box/cpu0", "must be 64 hexadecimal digits"),
        (variant(1, "a" * 64), "box/cpu9", "device 'box/cpu9': this node has no such device (it has box/cpu0)"),
    ],
)
async def test_an_order_that_cannot_be_carried_out_fails_with_the_reason(settings, control_plane, spec, device, says):
    async with up(settings, control_plane):
        await control_plane.say(order(3, spec, device))
        failed = await control_plane.receive(control.ProfileFailed)
        assert says in failed.message
        assert not failed.retry


async def test_a_cancelled_job_stops_and_answers_nothing(settings, control_plane, digest):
    async with up(settings, control_plane):
        await control_plane.say(order(3, variant(1, digest, "hang")))
        await control_plane.until(lambda: "measure 3 hang 9" in asked(settings))
        await control_plane.say(control.ProfileCancel(job=3))
        # Its device measures for somebody else at once.
        await control_plane.say(order(4, variant(1, digest)))
        assert (await control_plane.receive(control.ProfileDone)).job == 4
        assert "cancel 3" in asked(settings)
    ends = [m.job for m in control_plane.received if isinstance(m, control.ProfileFailed | control.ProfileDone)]
    assert set(ends) == {4}


async def test_a_job_that_ends_while_the_control_plane_is_away_is_reported_when_it_returns(
    settings, control_plane, digest
):
    async with up(settings, control_plane) as daemon:
        await daemon.cache.fetch(digest)
        await control_plane.stop()
        await control_plane.until(lambda: not daemon.link.up)
        daemon.jobs.order(order(3, variant(1, digest)))
        await control_plane.until(lambda: "measure 3 v1 9" in asked(settings))
        await control_plane.start()
        assert (await control_plane.receive(control.ProfileDone)).job == 3


async def test_each_second_a_node_reports_what_it_holds_though_no_device_has_anything_to_report(
    settings, control_plane
):
    async with running(settings, command=("false",)):
        first = await control_plane.receive(control.NodeStats)
        assert (first.devices, first.plan_version, first.config_hash, first.jobs) == ((), 0, "", ())
        digest = control_plane.add_blob(b"model")
        sent = control.with_hash(config(7, variant(1, digest)))
        await control_plane.say(sent)
        await control_plane.receive(control.NodeStats, lambda m: (m.plan_version, m.config_hash) == (7, sent.hash))
        await control_plane.say(order(31, variant(1, digest)))
        await control_plane.receive(control.NodeStats, lambda m: m.jobs == (31,))
    # After a restart the stored configuration is known by its hash.
    control_plane.received.clear()
    async with running(settings, command=("false",)):
        assert (await control_plane.receive(control.NodeStats)).config_hash == sent.hash


# --- devices and files that come and go -----------------------------------------------------------------------------


async def test_a_device_that_appears_later_is_joined_and_served_on(settings, control_plane, digest):
    """As a GPU whose driver is loaded late: the daemon starts with one of its two devices."""
    settings = dataclasses.replace(settings, cpu_devices="0;1")
    both = devices.find(settings)
    control_plane.greeting = [control.encode(config(5, variant(1, digest), device="box/cpu1"))]
    daemon = NodeDaemon(
        settings,
        Layout(both[:1]),
        command=STAND_IN,
        restart_timing=dataclasses.replace(QUICK_RESTART, probe=0.2),
        link_timing=QUICK_LINK,
    )
    task = asyncio.create_task(daemon.run())
    try:
        joined = await control_plane.receive(control.JoinNode, lambda m: len(m.devices) == 2)
        assert [device.id for device in joined.devices] == ["box/cpu0", "box/cpu1"]
        states = await control_plane.receive(control.DeviceStates, warm(1, 5))
        assert [state.device for state in states.devices] == ["box/cpu0", "box/cpu1"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    # One that is gone at the next start leaves no process behind.
    left = ExecutorProcess.start((sys.executable, "-c", "import time; time.sleep(600)"), os.environ, ())
    left.write(pid_path(both[1].endpoint))
    async with running(dataclasses.replace(settings, cpu_devices="0")):
        await control_plane.until(lambda: not left.running)
    assert not pid_path(both[1].endpoint).exists()


async def test_a_file_that_the_disk_damaged_is_fetched_again_and_loaded_anew(settings, control_plane):
    digest, idle = control_plane.add_blob(b"model one"), control_plane.add_blob(b"another")
    control_plane.greeting = [control.encode(config(5, variant(1, digest), keep=(idle,)))]
    async with running(settings) as daemon:
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        await daemon.cache.fetch(idle)
        first = daemon.executors["box/cpu0"].pid
    (settings.home / "cache" / digest).write_bytes(b"model 0ne")
    (settings.home / "cache" / idle).write_bytes(b"an0ther")
    control_plane.received.clear()
    async with running(settings) as daemon:
        await control_plane.receive(control.DeviceStates, lambda m: "damaged on disk" in m.devices[0].detail)
        control_plane.received.clear()
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        assert daemon.executors["box/cpu0"].pid != first
        assert daemon.cache.path(digest).read_bytes() == b"model one"
        assert daemon.cache.path(idle) is None


# --- cores divided anew ---------------------------------------------------------------------------------------------


def _joined(count: int):
    return lambda m: len(m.devices) == count


async def test_cores_are_divided_anew_beside_what_serves_and_stay_so_after_a_restart(settings, control_plane, digest):
    settings = dataclasses.replace(settings, cpu_devices="0;1")
    serving = config(5, variant(1, digest))
    control_plane.greeting = [control.encode(serving)]
    async with running(settings) as daemon:
        first = await control_plane.receive(control.JoinNode)
        assert (first.divided, first.ordered, first.retiring, set(first.cores) >= {0, 1}) == ("0;1", False, (), True)
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        before = daemon.executors["box/cpu0"].pid
        ordered = msgspec.structs.replace(serving, cpu_devices="0-1")
        control_plane.greeting = [control.encode(ordered)]
        await control_plane.say(ordered)
        joined = await control_plane.receive(control.JoinNode, _joined(3))
        assert [(device.id, device.cores) for device in joined.devices][2] == ("box/cpu2", (0, 1))
        assert (joined.divided, joined.ordered, joined.retiring) == ("0-1", True, ("box/cpu0", "box/cpu1"))
        await control_plane.receive(control.DeviceStates, lambda m: len(m.devices) == 3 and m.devices[2].state == "up")
        assert daemon.executors["box/cpu0"].pid == before, "it serves until the new device does"
        beside = daemon.executors["box/cpu2"].pid
    # A restart in the middle goes on with all three.
    control_plane.received.clear()
    async with running(settings) as daemon:
        joined = await control_plane.receive(control.JoinNode)
        assert [device.id for device in joined.devices] == ["box/cpu2", "box/cpu0", "box/cpu1"]
        assert joined.retiring == ("box/cpu0", "box/cpu1") and daemon.executors["box/cpu2"].pid != beside
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        # Plans leave them out now: they end once they hold nothing.
        control_plane.received.clear()
        moved = config(6, variant(1, digest), device="box/cpu2")
        moved = msgspec.structs.replace(moved, cpu_devices="0-1", retired=("box/cpu0", "box/cpu1"))
        control_plane.greeting = [control.encode(moved)]
        await control_plane.say(moved)
        joined = await control_plane.receive(control.JoinNode, _joined(1))
        assert (joined.devices[0].id, joined.retiring) == ("box/cpu2", ())
        await control_plane.receive(control.DeviceStates, lambda m: [d.device for d in m.devices] == ["box/cpu2"])
    control_plane.received.clear()
    async with running(settings):
        joined = await control_plane.receive(control.JoinNode)
        assert [(device.id, device.cores) for device in joined.devices] == [("box/cpu2", (0, 1))]
        # Back to the settings: the first names are free again.
        await control_plane.say(msgspec.structs.replace(moved, cpu_devices="", retired=()))
        joined = await control_plane.receive(control.JoinNode, _joined(3))
        assert [device.id for device in joined.devices] == ["box/cpu2", "box/cpu0", "box/cpu1"]
        assert (joined.divided, joined.ordered, joined.retiring) == ("0;1", False, ("box/cpu2",))


def test_devices_of_a_division_listen_where_the_settings_say_now(settings):
    settings = dataclasses.replace(settings, cpu_devices="0;1", executors=Address("127.0.0.1", 8100))
    # A retiring device is there beside the one that has its core now.
    layout = Layout(devices.find(settings), "0-1", frozenset({"box/cpu1"}))
    redivision.file(settings).parent.mkdir(parents=True, exist_ok=True)
    redivision.file(settings).write_bytes(msgspec.json.encode(layout))
    for executors, listens in (
        (Address("127.0.0.1", 8100), ["127.0.0.1:8100", "127.0.0.1:8101"]),
        (Address("127.0.0.2", 9000), ["127.0.0.2:9000", "127.0.0.2:9001"]),
        (None, ["", ""]),
    ):
        restored = redivision.restore(dataclasses.replace(settings, executors=executors))
        assert [one.id for one in restored.devices] == ["box/cpu2", "box/cpu1"]
        assert [one.address for one in restored.devices] == listens


async def test_a_division_that_the_box_cannot_have_is_refused_with_the_reason(settings, control_plane):
    async with running(settings) as daemon:
        await control_plane.receive(control.JoinNode)
        await control_plane.say(msgspec.structs.replace(config(0), cpu_devices="999x1"))
        joined = await control_plane.receive(control.JoinNode, lambda m: m.division_problem)
        assert "asks for 999 cores" in joined.division_problem and joined.divided == "1x1"
        assert list(daemon.executors) == ["box/cpu0"]
        await control_plane.say(config(0))
        control_plane.received.clear()
        await control_plane.receive(control.JoinNode, lambda m: not m.division_problem)
