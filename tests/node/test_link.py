"""The member link against a real websocket server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import stat
import time
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import serve

from tests.node.conftest import QUICK_LINK
from tests.node.control_plane import ControlPlane
from tools.waiting import eventually_async
from workers.credential import same_control_plane
from workers.link import MemberLink, Membership
from workers.protocol import control
from workers.protocol.specs import ApplicationStats, DeviceState, PlanSpec

CONFIG = control.GatewayConfig(applications=(), key_hashes=("k",), plan=PlanSpec(version=3))


class Member:
    """A gateway's link whose callbacks are written down."""

    def __init__(self, home, url: str, join_token: str = "join-me", timing=QUICK_LINK):
        self.events: list[object] = []
        self.link = MemberLink(
            Membership("gateway", "gate 1/α", url, home, join_token),
            join=lambda host: control.JoinGateway(name="gate", address=f"{host}:8000"),
            on_message=self.events.append,
            on_up=lambda: self.events.append("up"),
            on_down=lambda: self.events.append("down"),
            timing=timing,
        )


@asynccontextmanager
async def running(member: Member):
    task = asyncio.create_task(member.link.run())
    try:
        yield member
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), task.exception()


def joined(home, plane: ControlPlane, **options):
    return running(Member(home, plane.url, **options))


async def test_the_join_token_is_exchanged_for_a_private_credential(home, control_plane):
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
        assert control_plane.received[0] == control.JoinGateway(name="gate", address="127.0.0.1:8000")
        assert member.link.credential == "secret-1"
    (file,) = (home / "members").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["credential"] == "secret-1"
    async with joined(home, control_plane, join_token="") as member:
        await control_plane.until(lambda: member.link.up)
    assert control_plane.shown == ["join-me", "secret-1"]


async def test_messages_are_handed_over_in_order_after_up(home, control_plane):
    control_plane.greeting = [control.encode(CONFIG)]
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: len(member.events) == 2)
        assert member.events == ["up", CONFIG]


async def test_a_refused_credential_falls_back_to_the_join_token(home, control_plane):
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
    control_plane.tokens = {"join-me"}
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
        assert member.link.credential == "secret-2"
    assert control_plane.shown == ["join-me", "secret-1", "join-me"]


async def test_a_refused_join_token_is_tried_on_slowly_and_said(home, control_plane):
    control_plane.tokens = set()
    async with joined(home, control_plane, join_token="wrong") as member:
        await control_plane.until(lambda: len(control_plane.shown) >= 2)
        assert (member.link.state, member.link.detail, member.link.up) == ("unauthorized", "unknown token", False)
        control_plane.tokens = {"wrong"}
        await control_plane.until(lambda: member.link.up)


async def test_without_any_token_the_variable_is_named_and_nothing_is_sent(home, control_plane):
    async with joined(home, control_plane, join_token="") as member:
        await control_plane.until(lambda: member.link.state == "unauthorized")
        assert "NEREUS_JOIN_TOKEN" in member.link.detail
    assert control_plane.shown == []


async def test_it_comes_back_when_the_control_plane_does_and_brings_what_happened(home, control_plane):
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
        await control_plane.stop()
        await control_plane.until(lambda: not member.link.up)
        second = {"digits": ApplicationStats(arrived=5)}
        sent = time.monotonic()
        member.link.send(control.GatewayStats(applications=second, ready=True))
        member.link.send(control.Burst(application="digits", rate=9.0, plan_version=1))
        await asyncio.sleep(0.3)
        await control_plane.start()
        stats = await control_plane.receive(control.GatewayStats)
        assert stats.applications == second
        assert 0.2 < stats.at <= time.monotonic() - sent + 0.01
        assert not any(isinstance(message, control.Burst) for message in control_plane.received)
        assert member.events == ["up", "down", "up"]


async def test_a_silent_peer_is_noticed(home):
    """A server that accepts and then freezes: no close ever arrives."""
    plane = ControlPlane()
    await plane.start()
    frozen, over = asyncio.Event(), asyncio.Event()

    async def relay(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", plane.port)

        async def pump(source, sink):
            while data := await source.read(65536):
                if frozen.is_set():
                    await over.wait()
                    return
                sink.write(data)

        pumps = [asyncio.create_task(pump(reader, up_writer)), asyncio.create_task(pump(up_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            up_writer.close()
            writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    timing = dataclasses.replace(QUICK_LINK, ping_every=0.3, ping_answer=0.3)
    async with running(Member(home, f"http://127.0.0.1:{port}", timing=timing)) as member:
        await plane.until(lambda: member.link.up)
        frozen.set()
        await plane.until(lambda: not member.link.up)
        # On a busy machine it may have missed an answer before.
        assert member.events[-2:] == ["up", "down"]
    over.set()
    server.close()
    await plane.stop()


async def test_pending_waits_on_the_same_connection_until_approved(home, control_plane):
    control_plane.admit = False
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.state == "pending")
        assert member.link.detail == "wait for approval"
        assert not member.link.up
        await control_plane.say(control.Joined(member=4, credential="late-secret"))
        await control_plane.until(lambda: member.link.up)
        assert member.link.credential == "late-secret"
    assert len(control_plane.shown) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        "not json",
        "[]",
        '{"v": 1}',
        '{"type": "joined"}',
        '{"v": 1, "type": "launch_missiles"}',
        '{"v": 1, "type": "gateway_config", "applications": 3}',
        '{"v": "one", "type": "joined"}',
        '"\\ud800"',
    ],
)
async def test_nonsense_is_logged_and_the_connection_goes_on(home, control_plane, nonsense):
    control_plane.greeting = [nonsense, control.encode(CONFIG)]
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: CONFIG in member.events)
        assert member.events == ["up", CONFIG]
    assert len(control_plane.shown) == 1


async def test_another_protocol_version_stops_the_hurry(home, control_plane):
    control_plane.greeting = ['{"v": 99, "type": "gateway_config"}']
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.state == "version")
        assert "99" in member.link.detail
        assert not member.link.up
        control_plane.greeting = []
        await control_plane.until(lambda: member.link.up)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (control.CLOSE_VERSION, "version"),
        (control.CLOSE_REPLACED, "replaced"),
        (control.CLOSE_MALFORMED, "malformed"),
        (control.CLOSE_UNAUTHORIZED, "unauthorized"),
        (1011, "down"),
    ],
)
async def test_a_close_code_is_understood_and_then_tried_again(home, control_plane, code, state):
    control_plane.close_next_with = code
    states = []
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: states.append(member.link.state) or member.link.up)
    assert state in states


async def test_a_credential_goes_to_the_control_plane_that_issued_it_and_to_no_other(home, control_plane):
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
    other = ControlPlane()
    await other.start()
    async with joined(home, other, join_token="") as member:
        await other.until(lambda: member.link.state == "unauthorized")
        assert control_plane.url in member.link.detail and other.url in member.link.detail
        assert "NEREUS_JOIN_TOKEN" in member.link.detail
        assert member.link.credential is None, "models are not fetched with it either"
    assert other.shown == []
    async with joined(home, other) as member:
        await other.until(lambda: member.link.up)
    assert other.shown == ["join-me"]
    await other.stop()


@pytest.mark.parametrize(
    ("issuer", "now", "same"),
    [
        ("http://box:8080", "http://box:8080", True),
        ("http://box:8080", "https://box:8080", True),
        ("https://box", "https://box:443", True),
        ("https://box:8080", "http://box:8080", False),
        ("http://box:8080", "http://box:8081", False),
        ("http://box:8080", "http://other:8080", False),
        ("http://box:8080", "http://box:8080.evil.example", False),
        ("", "http://box:8080", False),
        ("http://[", "http://box:8080", False),
    ],
)
def test_one_control_plane_is_one_host_and_port_and_never_in_clear_again(issuer, now, same):
    assert same_control_plane(issuer, now) is same


async def test_a_replaced_member_backs_off_and_says_why(home, control_plane):
    timing = dataclasses.replace(QUICK_LINK, replaced_first=0.1, replaced_longest=600.0)
    control_plane.close_next_with = control.CLOSE_REPLACED
    async with joined(home, control_plane, timing=timing) as member:
        await control_plane.until(lambda: member.link.state == "replaced")
        assert "two processes use one NEREUS_HOME" in member.link.detail
        await control_plane.until(lambda: member.link.up)


async def test_pauses_double_from_one_replacement_to_the_next_though_the_member_was_admitted_between(
    home, control_plane
):
    timing = dataclasses.replace(QUICK_LINK, replaced_first=0.1, replaced_longest=600.0)
    control_plane.close_next_with = control.CLOSE_REPLACED
    async with joined(home, control_plane, timing=timing):
        for connection in range(1, 5):
            began = time.monotonic()
            await control_plane.until(lambda number=connection: len(control_plane.shown) == number)
            await control_plane.until(lambda: control_plane.close_next_with is None)
            control_plane.close_next_with = control.CLOSE_REPLACED
    assert time.monotonic() - began >= 0.2, "at least half of the third pause"


async def test_a_failing_callback_does_not_end_the_link(home, control_plane):
    control_plane.greeting = [control.encode(CONFIG), control.encode(CONFIG)]
    async with joined(home, control_plane) as member:
        calls = []

        def fail(message):
            calls.append(message)
            raise RuntimeError("bug")

        member.link._on_message = fail
        await control_plane.until(lambda: len(calls) == 2)
        assert member.link.up


async def test_an_error_that_nobody_expected_does_not_end_the_link(home, control_plane):
    async with running(Member(home, "http://a..b")) as member:
        await control_plane.until(lambda: member.link.state == "down")
        assert "UnicodeError" in member.link.detail
        member.link._url = control_plane.url.replace("http", "ws") + "/ws/gateway/"
        await control_plane.until(lambda: member.link.up)


async def test_a_credential_file_that_cannot_be_read_is_replaced(home, control_plane):
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
    (file,) = (home / "members").iterdir()
    file.write_text("{half")
    async with joined(home, control_plane) as member:
        await control_plane.until(lambda: member.link.up)
    assert json.loads(file.read_text())["credential"] == "secret-2"


async def test_state_sent_before_the_link_is_up_arrives_once_in_its_newest_form(home, control_plane):
    member = Member(home, control_plane.url)
    member.link._url = member.link._url.replace("/ws/gateway/", "/ws/node/")
    for state in ("starting", "up"):
        member.link.send(control.DeviceStates(devices=(DeviceState(device="d", state=state),)))
    member.link._join = lambda host: control.JoinNode(name="n", devices=())
    async with running(member):
        await control_plane.receive(control.DeviceStates)
        await asyncio.sleep(0.1)
    reports = [message for message in control_plane.received if isinstance(message, control.DeviceStates)]
    assert [message.devices[0].state for message in reports] == ["up"]


async def test_a_control_plane_that_never_answers_the_join_is_left(home):
    """It accepts, and answers pings: only the missing answer shows that it lost the member."""
    connections = []

    async def accept(socket):
        connections.append(socket)
        await socket.wait_closed()

    async with serve(accept, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        member = Member(home, f"http://127.0.0.1:{port}", timing=dataclasses.replace(QUICK_LINK, answer=0.2))
        async with running(member):
            await eventually_async(lambda: len(connections) >= 3)
    assert member.events == []
