"""Devices that no gateway's core reaches are left out of plans, and come back; plans name them all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from registry import clock, reach
from registry.models import Device, Gateway, Node, Profile
from registry.reach import Reported
from scheduler import live
from scheduler.control.planner import make_plan
from scheduler.members import contents, following, reaching
from scheduler.members.reaching import PATIENCE_S, SILENCE_S, cut_off
from scheduler.presence import reported
from tests.accounts import account, bearer, signed_in
from tests.control.connections import Connection, token
from tests.control.linked import cluster, until
from tests.control.test_reach import available
from tests.control.world import application, listening, node, requested, seen, variant
from workers.node.supervision import COMMAND
from workers.protocol import control
from workers.protocol.specs import DeviceInfo, DeviceState, Reach

rows = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

ages = st.floats(0, 100)
views = st.builds(Reported, st.booleans()) | st.builds(Reported, st.booleans(), st.booleans(), ages)


@given(st.booleans(), ages, ages)
def test_without_any_gateway_nothing_changes(was, serving_s, silent_s):
    assert cut_off(was, [], serving_s, silent_s) is was


@given(st.booleans(), st.lists(views, min_size=1), views, ages)
def test_one_more_gateway_that_says_nothing_else_cuts_nothing_off(was, some, more, serving_s):
    before = cut_off(was, some, serving_s)
    if more.reached is not False:
        assert cut_off(was, [*some, more], serving_s) <= before


silences = st.floats(SILENCE_S, 100)
#: a core that reached the device before, and does not now
lost = st.builds(Reported, st.booleans(), st.just(False), ages, st.just(True))


@given(st.lists(lost, min_size=1), st.floats(SILENCE_S, 100), silences)
def test_a_device_that_a_core_lost_with_its_node_is_cut_off_at_once(some, serving_s, silent_s):
    assert cut_off(False, some, serving_s, silent_s)
    assert not cut_off(False, some, 0.0, silent_s), "it does not serve"
    new = Reported(announced=True, reached=False, unreached_s=PATIENCE_S / 2)
    assert not cut_off(False, [*some, new], serving_s, silent_s), "a core that has just started may reach it"
    assert not cut_off(False, [*some, Reported(announced=True)], serving_s, silent_s), "it has not said anything"


@given(st.lists(views | lost), ages, st.floats(0, SILENCE_S, exclude_max=True))
def test_a_node_that_sends_has_the_whole_patience(some, serving_s, silent_s):
    assert cut_off(False, some, serving_s, silent_s) == cut_off(False, some, serving_s)


@given(st.booleans(), st.lists(views | lost), ages, ages)
def test_what_was_cut_off_sooner_stays_so_later(was, some, serving_s, silent_s):
    if cut_off(was, some, serving_s, silent_s):
        older = [view._replace(unreached_s=view.unreached_s + 1) for view in some]
        assert cut_off(was, older, serving_s + 1, silent_s + 1)
        assert cut_off(True, older, serving_s, 0.0), "also when the node reports again"


def test_a_report_is_undecided_while_a_devices_time_runs():
    assert not reaching.undecided(None) and not reaching.undecided(Reach(reached=("a/0",)))
    assert reaching.undecided(Reach(unreached={"a/0": PATIENCE_S - 0.1, "b/0": 90.0}))
    assert not reaching.undecided(Reach(unreached={"a/0": PATIENCE_S}))


def test_a_report_says_something_new_once_a_devices_time_is_over():
    before = reaching.mark(Reach(unreached={"a/0": 1.0}))
    assert reaching.mark(Reach(unreached={"a/0": PATIENCE_S - 0.1})) == before
    assert reaching.mark(Reach(unreached={"a/0": PATIENCE_S})) != before
    assert len({before, reaching.mark(Reach(reached=("a/0",))), reaching.mark(None)}) == 3


@pytest.fixture
def boxes():
    for name in ("near", "far"):
        node(name, devices=1)
    for name in ("one", "two"):
        Gateway.objects.create(name=name, state="approved", channel="c", reach={}, **seen())
    variant(application(), "best", 90, 5)
    listening(live.client())
    Device.objects.update(warm=[])
    make_plan("periodic")
    requested()


def says(name: str, reached: tuple[str, ...] = (), **unreached: float) -> None:
    found = Reach(reached=reached, unreached={f"{ref}/cpu0": age for ref, age in unreached.items()})
    for gateway in Gateway.objects.filter(name__in=("one", "two") if name == "both" else (name,)).order_by("name"):
        reaching.report(gateway.pk, found)


def sends(*names: str) -> None:
    reported(dict.fromkeys(Node.objects.filter(name__in=names).values_list("pk", flat=True), clock.stamp()))
    Node.objects.filter(name__in=names).update(**seen())
    listening(live.client())


class TestDecision:
    pytestmark = rows

    def test_a_device_that_no_core_reaches_is_left_out_named_and_taken_back(self, boxes):
        says("one", ("near/cpu0",), far=5.0)
        assert len(available()) == 2, "the other core has not said anything"
        says("two", ("near/cpu0",), far=PATIENCE_S - 1)
        assert len(available()) == 2 and not requested(), "an executor may be back at once"
        says("two", ("near/cpu0",), far=PATIENCE_S)
        assert available() == {"near/cpu0"} and requested()
        plan = make_plan("change")
        assert {one["device"]: len(one["residents"]) for one in plan.wire["devices"]} == {"far/cpu0": 0, "near/cpu0": 1}
        kept = contents.node_config(Node.objects.get(name="far").pk, contents.read().shared).plan.devices[0].may_stay
        assert kept, "it keeps loaded what it has, unlike a cordoned one"
        assert following.lacking(Node, "far") == ["device far/cpu0 is reached by no gateway"]

        requested()
        says("one", ("near/cpu0",), far=90.0)
        assert not requested(), "nothing new"
        says("one", ("near/cpu0", "far/cpu0"))
        assert len(available()) == 2 and requested()

    def test_a_device_lost_with_its_node_is_left_out_at_once_and_taken_back_once(self, boxes, later):
        sends("near", "far")
        says("both", ("near/cpu0", "far/cpu0"))
        later(SILENCE_S)
        sends("near")
        reaching.look()
        assert len(available()) == 2, "both cores reach it"
        says("one", ("near/cpu0",), far=0.0)
        assert len(available()) == 2, "the other core still does"
        says("two", ("near/cpu0",), far=0.0)
        assert available() == {"near/cpu0"} and requested()
        plan = make_plan("change")
        assert {one["device"]: len(one["residents"]) for one in plan.wire["devices"]} == {"far/cpu0": 0, "near/cpu0": 1}

        requested()
        sends("far")
        reaching.look()
        assert available() == {"near/cpu0"} and not requested(), "it is back, but no core reaches it"
        says("one", ("near/cpu0", "far/cpu0"))
        assert len(available()) == 2 and requested()
        says("two", ("near/cpu0",), far=1.0)
        assert len(available()) == 2

    def test_a_device_that_is_lost_first_is_left_out_once_its_node_is_silent(self, boxes, later):
        sends("near", "far")
        says("both", ("near/cpu0", "far/cpu0"))
        says("both", ("near/cpu0",), far=0.0)
        later(SILENCE_S - 1)
        reaching.look()
        assert len(available()) == 2, "its node sends, as far as is known"
        later(1)
        reaching.look()
        assert available() == {"near/cpu0"}

    def test_a_core_that_starts_is_not_believed_at_once(self, boxes, later):
        sends("near", "far")
        says("both", ("near/cpu0", "far/cpu0"))
        for gateway in Gateway.objects.all():
            reaching.joined(gateway.pk)
        later(SILENCE_S)
        says("both", ("near/cpu0",), far=0.1)
        assert len(available()) == 2

    def test_silence_after_an_absence_of_the_control_plane_does_not_count(self, boxes, later):
        sends("near", "far")
        says("both", ("near/cpu0", "far/cpu0"))
        later(SILENCE_S)
        live.client().delete("nereus:members_seen")
        says("both", ("near/cpu0",), far=0.0)
        assert len(available()) == 2
        live.client().delete(*live.client().keys("nereus:node_heard:*"))
        listening(live.client())
        reaching.look()
        assert len(available()) == 2, "nor what nobody has recorded"

    def test_gateways_that_are_silent_change_nothing(self, boxes):
        says("one", ("near/cpu0",), far=5.0)
        says("two", ("near/cpu0",), far=5.0)
        assert available() == {"near/cpu0"}
        Gateway.objects.update(channel="", seen_s=None)
        assert not reaching.judge() and available() == {"near/cpu0"}

    def test_a_gateway_that_is_lost_does_not_count_but_one_that_may_come_back_does(self, boxes):
        says("two", ("near/cpu0", "far/cpu0"))
        says("one", ("near/cpu0",), far=5.0)
        assert len(available()) == 2
        Gateway.objects.filter(name="two").update(channel="")
        live.client().delete("nereus:members_seen")
        assert not reaching.judge(), "the control plane itself was away"
        listening(live.client())
        assert reaching.judge() and available() == {"near/cpu0"}
        # Back, it has to reach the device before it counts.
        Gateway.objects.filter(name="two").update(channel="c", **seen())
        reaching.joined(Gateway.objects.get(name="two").pk)
        assert not reaching.judge()

    def test_a_device_that_starts_has_the_whole_patience(self, boxes, later):
        Device.objects.filter(ref="far/cpu0").update(state="down")
        from scheduler.members import devices

        devices.report(Node.objects.get(name="far"), [DeviceState(device="far/cpu0", state="up")])
        says("both", ("near/cpu0",), far=500.0)
        assert len(available()) == 2
        later(PATIENCE_S)
        for kind in (Node, Gateway):
            kind.objects.update(seen_s=clock.steady())
        listening(live.client())
        assert reaching.judge() and available() == {"near/cpu0"}
        devices.report(Node.objects.get(name="far"), [DeviceState(device="far/cpu0", state="down")])
        devices.report(Node.objects.get(name="far"), [DeviceState(device="far/cpu0", state="up")])
        assert len(available()) == 2, "another process may be reached"

    def test_the_last_device_goes_on_being_planned(self, boxes):
        says("both", (), far=5.0, near=5.0)
        assert available() == set() and make_plan("change") is None

    def test_rest_and_console_show_who_reaches_a_device(self, boxes):
        says("one", ("near/cpu0",), far=5.0)
        says("two", ("near/cpu0",), far=15.0)
        client = Client(headers={"authorization": bearer(account("operator", "operator"))})
        shown = client.get("/api/v1/devices/far/cpu0/").json()
        assert shown["gateways"] == [] and [one["gateway"] for one in shown["unreached_by"]] == ["one", "two"]
        assert shown["unreached_by"][1]["since"] < shown["unreached_by"][0]["since"]
        assert shown["unreachable"].startswith("not reached by any gateway (one, two) since 20")
        near = client.get("/api/v1/devices/near/cpu0/").json()
        assert (near["gateways"], near["unreached_by"], near["unreached_since"]) == (["one", "two"], [], None)
        page = signed_in("viewer").get("/nodes/").content.decode()
        assert "reached by one, two" in page and 'data-testid="unreached-far/cpu0-two"' in page
        assert 'data-testid="unreachable-far/cpu0"' in page and "check the network and firewalls" in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_redis")
async def test_a_gateways_statistics_say_it_and_hostile_ones_are_bounded():
    await sync_to_async(node)("far", devices=1)
    gateway = Connection("gateway", await token())
    await gateway.join("one")
    stats = control.GatewayStats(applications={}, ready=True, reach=Reach(unreached={"far/cpu0": 9.0, "other/x": 1.0}))
    await gateway.say(stats)

    def since():
        return Device.objects.get().unreached_since

    await until(sync_to_async(since), "the device is cut off")
    stored = await sync_to_async(Gateway.objects.get)()
    assert stored.reach["unreached"].keys() == {"far/cpu0"}, "devices that do not exist are left out"
    # Reports that waited while the link was down are history.
    late = control.GatewayStats(applications={}, ready=True, at=30.0, reach=Reach(reached=("far/cpu0",)))
    await gateway.say(late)
    await gateway.say({"type": "gateway_stats", "applications": {}, "ready": True, "reach": {"unreached": {"": -1}}})
    await gateway.say(control.GatewayStats(applications={}, ready=True, reach=Reach(reached=("far/cpu0",))))
    await until(sync_to_async(lambda: since() is None), "the next report is believed")
    await gateway.leave()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_redis")
async def test_the_next_second_of_a_gateway_finds_a_node_that_fell_silent_meanwhile(later):
    def register() -> None:
        Device.objects.update(state="up", serving_s=clock.steady() - 60)
        listening(live.client())

    def cut() -> bool:
        return Device.objects.get().unreached_since is not None

    secret = await token()
    device = DeviceInfo("far/cpu0", "cpu", "cpu-test-1c", "", (0,), None, 2**30, "unix:/run/far.sock")
    silent, gateway = Connection("node", secret), Connection("gateway", secret)
    await silent.join("far", devices=(device,))
    await gateway.join("one")
    await sync_to_async(register)()
    await silent.say(control.NodeStats(devices=()))
    await until(sync_to_async(lambda: live.client().keys("nereus:node_heard:*")), "its statistics")
    for found in (Reach(reached=("far/cpu0",)), Reach(unreached={"far/cpu0": 0.2})):
        await gateway.say(control.GatewayStats(applications={}, ready=True, reach=found))
    await until(sync_to_async(lambda: (Gateway.objects.get().reach or {}).get("lost")), "the report")
    assert not await sync_to_async(cut)(), "the node sends"
    later(SILENCE_S)
    await gateway.say(control.GatewayStats(applications={}, ready=True, reach=Reach(unreached={"far/cpu0": 1.2})))
    await until(sync_to_async(cut), "the device is cut off")
    await silent.leave()
    await gateway.leave()


class Relay:
    """A unix socket before an executor's, which can be cut off."""

    def __init__(self, path: Path, behind: str) -> None:
        self.path, self._behind = path, behind
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, str(self.path))

    async def _connected(self, reader, writer) -> None:
        back, forth = await asyncio.open_unix_connection(self._behind)
        self._open |= {writer, forth}
        await asyncio.gather(self._pump(reader, forth), self._pump(back, writer), return_exceptions=True)

    @staticmethod
    async def _pump(reader, writer) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def cut(self) -> None:
        self._server.close()
        self.path.unlink(missing_ok=True)
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_redis")
async def test_real_members_a_device_behind_a_cut_comes_back_when_it_is_mended(home):
    def register(endpoint: str) -> None:
        made = variant(application(), "best", 90, 5)
        Profile.objects.filter(variant=made).update(device_type=Device.objects.get().type)
        Device.objects.update(endpoint=endpoint)
        spare = node("spare", devices=1)
        Device.objects.filter(node=spare).update(type=Device.objects.exclude(node=spare).get().type)
        # Nobody is behind its socket, so no core reaches it either.
        make_plan("periodic")
        live.members_changed()

    def own(**wanted) -> bool:
        return Device.objects.filter(ref__startswith="box/", **wanted).exists()

    async with cluster(home, COMMAND) as (_, _daemon):
        await until(sync_to_async(lambda: own(state="up")), "the device")
        device = await sync_to_async(Device.objects.get)()
        relay = Relay(home / "relay.sock", device.endpoint.removeprefix("unix:"))
        await relay.start()
        await sync_to_async(register)(f"unix:{relay.path}")

        def reached() -> bool:
            return reach.reported(Gateway.objects.get(), Device.objects.get(ref=device.ref)).reached is True

        await until(sync_to_async(reached), "the core reports the device")
        await until(sync_to_async(lambda: Device.objects.get(ref="spare/cpu0").unreached_since), "the dead device")
        await sync_to_async(requested)()
        await relay.cut()
        await until(sync_to_async(lambda: own(unreached_since__isnull=False)), "the cut is known")
        # No device is left, and the plan in force stays: here another one takes over.
        await sync_to_async(Device.objects.filter(ref="spare/cpu0").update)(unreached_since=None)
        await sync_to_async(Node.objects.filter(name="spare").update)(**seen())
        plan = await sync_to_async(make_plan)("change")
        assert [one["id"] for one in plan.problem["devices"]] == ["spare/cpu0"]
        await sync_to_async(live.members_changed)()
        await asyncio.sleep(1.0)
        await relay.start()
        await until(sync_to_async(lambda: own(unreached_since=None)), "the device is reached again")
        await until(sync_to_async(requested), "a plan is asked for")
        assert device.ref in await sync_to_async(available)()
