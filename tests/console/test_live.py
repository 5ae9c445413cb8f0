"""The live page's websocket: a browser's events, who may connect, and bad input."""

from __future__ import annotations

import asyncio
import json
import time
from unittest.mock import AsyncMock

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from appliance import asgi
from console import consumers
from console.outbox import LIMIT, SNAPSHOT
from registry import members
from scheduler import live
from tests.accounts import account
from tests.console.conftest import add_plan

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

#: a page of this console
HOST = [(b"host", b"127.0.0.1"), (b"origin", b"http://127.0.0.1")]


def cookie(client: Client) -> list[tuple[bytes, bytes]]:
    name = settings.SESSION_COOKIE_NAME
    return [(b"cookie", f"{name}={client.cookies[name].value}".encode())] if name in client.cookies else []


class Browser:
    def __init__(self, client: Client, path: str = "/ws/console/live/"):
        path, _, query = path.partition("?")
        scope = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": HOST + cookie(client)}
        self._socket = ApplicationCommunicator(asgi.websocket, scope)

    async def __aenter__(self) -> Browser:
        await self._socket.send_input({"type": "websocket.connect"})
        assert (await self._socket.receive_output(60))["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *error) -> None:
        await self._socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._socket.wait(60)

    async def event(self, timeout: float = 60) -> dict:
        output = await self._socket.receive_output(timeout)
        assert output["type"] == "websocket.send", output
        return json.loads(output["text"])

    async def until(self, name: str) -> dict:
        while True:
            event = await self.event()
            if event["event"] == name:
                return event["data"]

    async def events_within(self, seconds: float) -> list[str]:
        await asyncio.sleep(seconds)
        names = []
        while not await self._socket.receive_nothing():
            names.append((await self.event())["event"])
        return names

    async def say(self, text: str | None = None, data: bytes | None = None) -> None:
        await self._socket.send_input({"type": "websocket.receive", "text": text, "bytes": data})

    async def close_code(self) -> tuple[int, str]:
        detail = ""
        while True:
            output = await self._socket.receive_output(60)
            if output["type"] == "websocket.close":
                return output["code"], detail
            message = json.loads(output["text"])
            if message["event"] == "error":
                detail = message["data"]["detail"]


async def test_a_browser_first_gets_the_state_then_events(staff, cluster):
    plan = await sync_to_async(add_plan)(cluster["best"], left_out=5.0)
    async with Browser(staff) as browser:
        snapshot = (await browser.event())["data"]
        assert {device["ref"]: device["state"] for device in snapshot["devices"]} == {
            "box/cpu0": "up",
            "box/cpu1": "down",
        }
        assert {node["name"]: node["state"] for node in snapshot["nodes"]} == {"box": "approved", "shed": "pending"}
        assert snapshot["plan"]["version"] == plan.pk
        assert [p["variant_name"] for p in snapshot["plan"]["placements"]] == ["best"]
        await live.publish_async("changed", {"kind": "variant", "ref": "digits/best"})
        assert await browser.until("changed") == {"kind": "variant", "ref": "digits/best"}


async def test_a_viewer_does_not_learn_the_names_of_keys():
    viewer = await sync_to_async(Client)()
    await sync_to_async(viewer.force_login)(await sync_to_async(account)("watcher", "viewer"))
    async with Browser(viewer) as browser:
        await browser.until("snapshot")
        await sync_to_async(members.create_api_key)("payroll")
        assert await browser.until("changed") == {"kind": "api_key", "ref": ""}


async def test_a_browser_can_ask_for_the_state_again(staff, cluster):
    async with Browser(staff) as browser:
        await browser.until("snapshot")
        await sync_to_async(cluster["application"].delete)()
        await browser.say('{"command": "snapshot"}')
        assert (await browser.until("snapshot"))["applications"] == []
        await browser.say('{"command": "ping"}')
        assert (await browser.until("pong"))["now"] == pytest.approx(time.time(), abs=60)


async def test_a_browser_that_asks_without_a_pause_gets_the_state_now_and_then(staff, cluster):
    async with Browser(staff) as browser:
        await browser.until("snapshot")
        began, found = time.monotonic(), 0
        for _ in range(200):
            await browser.say('{"command": "snapshot"}')
        while not found:
            found += (await browser.event())["event"] == "snapshot"
        await browser.say('{"command": "ping"}')
        while (event := (await browser.event())["event"]) != "pong":
            found += event == "snapshot"
        assert found <= 2 + (time.monotonic() - began) / consumers.RESYNC_EVERY_S


async def test_only_a_state_that_follows_an_overflow_is_followed_by_a_pause(monkeypatch):
    browser, pause = consumers.LiveConsumer({}, AsyncMock()), AsyncMock()
    monkeypatch.setattr(browser, "_send_snapshot", AsyncMock())
    monkeypatch.setattr(asyncio, "sleep", pause)
    for changes in (0, LIMIT, 0):
        for message in (SNAPSHOT, *[{"event": "changed"}] * changes):
            browser.put(message)
        await browser._send_next()
    assert [call.args for call in pause.await_args_list] == [(0,), (consumers.RESYNC_EVERY_S,), (0,)]


async def test_without_a_session_the_connection_ends_with_4401(db):
    async with Browser(Client()) as browser:
        assert await browser.close_code() == (4401, "sign in with an account that has a role first")


def sign_out(client: Client) -> None:
    assert client.post("/logout/").status_code == 302


def lose_staff(_: Client) -> None:
    User.groups.through.objects.all().delete()


def change_password(_: Client) -> None:
    user = User.objects.get()
    user.set_password("another long passphrase")
    user.save()


def be_deleted(_: Client) -> None:
    User.objects.all().delete()


@pytest.mark.parametrize("end", [sign_out, lose_staff, change_password, be_deleted])
async def test_who_may_no_longer_look_is_cut_off_at_the_next_event(staff, monkeypatch, end):
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    async with Browser(staff) as browser:
        await browser.until("snapshot")
        await sync_to_async(end)(staff)
        await live.publish_async("changed", {"kind": "node", "ref": "secret"})
        assert await browser.close_code() == (4401, "you have been signed out")


BAD = {
    "not JSON": ("hello", None, 4400, "not a command"),
    "half JSON": ('{"command": "ping"', None, 4400, "not a command"),
    "a list": ("[]", None, 4400, "Expected `object`"),
    "an unknown command": ('{"command": "reboot"}', None, 4400, "reboot"),
    "no command": ("{}", None, 4400, "command"),
    "a field too many": ('{"command": "ping", "x": 1}', None, 4400, "`x`"),
    "deep nesting": ("[" * 4000, None, 4400, "not a command"),
    "half a surrogate pair": ('{"command": "\ud800"}', None, 4400, "not a command"),
    "too large": ('{"command": "' + "x" * 5000 + '"}', None, 1009, "at most 4096 bytes"),
    "binary": (None, b'{"command": "ping"}', 1003, "JSON text"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_bad_input_ends_the_connection_with_a_reason(staff, kind):
    text, data, code, says = BAD[kind]
    async with Browser(staff) as browser:
        await browser.until("snapshot")
        await browser.say(text, data)
        closed, detail = await browser.close_code()
        assert closed == code
        assert says in detail


@pytest.mark.parametrize("path", ["/", "/nothing/", "/ws/console/live/more/"])
async def test_an_unknown_path_ends_with_4404(staff, path):
    async with Browser(staff, path) as browser:
        assert await browser.close_code() == (4404, "no websocket at this path")


async def test_redis_being_away_is_reported_and_not_a_traceback(staff, monkeypatch):
    from redis.exceptions import ConnectionError as RedisAway

    async def away(key):
        raise RedisAway("Connection refused")

    monkeypatch.setattr(consumers, "_snapshot_text", away)
    async with Browser(staff) as browser:
        assert await browser.close_code() == (1011, "the live state cannot be read now")


async def test_a_burst_of_events_beyond_what_may_wait_ends_in_the_whole_state(staff, monkeypatch):
    """The sender is held up at its first event while hundreds arrive."""
    entered, release, arrived = asyncio.Event(), asyncio.Event(), asyncio.Event()
    send, put = consumers.LiveConsumer._send, consumers.LiveConsumer.put

    async def held(self, message):
        if message["event"] == "changed" and not release.is_set():
            entered.set()
            await release.wait()
        await send(self, message)

    def watched(self, message):
        put(self, message)
        if '"last"' in message.get("text", ""):
            arrived.set()

    monkeypatch.setattr(consumers.LiveConsumer, "_send", held)
    monkeypatch.setattr(consumers.LiveConsumer, "put", watched)
    async with Browser(staff) as browser:
        await browser.until("snapshot")
        await live.publish_async("changed", {"kind": "node", "ref": "0"})
        await asyncio.wait_for(entered.wait(), 60)
        for n in range(1, 300):
            await live.publish_async("changed", {"kind": "node", "ref": n})
        await live.publish_async("changed", {"kind": "node", "ref": "last"})
        await asyncio.wait_for(arrived.wait(), 60)
        release.set()
        got = []
        while not got or got[-1]["event"] != "snapshot":
            got.append(await browser.event())
    names = [event["event"] for event in got]
    assert len(names) < 300


async def test_a_browser_that_does_not_read_is_let_go(staff, monkeypatch):
    async def stuck(self, message):
        await asyncio.sleep(3600)

    monkeypatch.setattr(consumers, "SEND_TIMEOUT_S", 0.1)
    monkeypatch.setattr(consumers.LiveConsumer, "_send", stuck)
    async with Browser(staff) as browser:
        assert (await browser.close_code())[0] == 4408


async def test_a_tab_goes_on_when_redis_was_away_and_gets_the_state_that_it_missed(staff, clean_redis, monkeypatch):
    # Repairs may differ without Redis, and would be a message.
    monkeypatch.setattr(consumers, "REPAIRS_EVERY_S", 1e9)
    async with Browser(staff) as browser:
        await browser.until("snapshot")
        clean_redis.flushall()
        await live.publish_async("changed", {"kind": "variant", "ref": "digits/best"})
        assert await browser.until("changed")
        clean_redis.client_kill_filter(_type="pubsub")
        assert await browser.until("snapshot")
        await live.publish_async("changed", {"kind": "variant", "ref": "digits/best"})
        assert await browser.until("changed")
        assert "snapshot" not in await browser.events_within(1.0)


def test_contents_that_are_emptied_in_between_have_a_name_all_the_same(clean_redis, monkeypatch):
    before = live.content()

    class Emptied:
        """Redis, emptied between two commands once."""

        def __init__(self):
            self.emptied = False

        def set(self, *args, **kwargs):
            return live_client.set(*args, **kwargs)

        def get(self, name):
            if not self.emptied:
                self.emptied = True
                live_client.flushall()
            return live_client.get(name)

    live_client, emptied = live.client(), Emptied()
    monkeypatch.setattr(live, "client", lambda: emptied)
    name = live.content()
    assert emptied.emptied and name and name != before
    assert live.content() == name
