"""Redis or the database in trouble: members stay connected, serve on and are admitted again. All is real."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
import time

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection
from redis import RedisError
from rest_framework.test import APIClient

from registry import members
from registry.models import ApiKey, Gateway, Node
from scheduler import live, presence, tasks, telemetry, troubles
from scheduler.control import requests
from scheduler.models import Plan
from tests.control import world
from tests.control.linked import cluster, until
from tests.running import SIGNATURE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture(autouse=True)
def _fresh():
    troubles._troubles.clear()
    yield
    troubles._troubles.clear()


@contextlib.contextmanager
def out_of_memory(redis):
    redis.config_set("maxmemory", "1")
    try:
        yield
    finally:
        redis.config_set("maxmemory", "0")


@contextlib.contextmanager
def hanging(redis):
    pid = redis.info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def flushed(redis):
    redis.flushall()
    yield


@contextlib.contextmanager
def connections_cut(redis):
    redis.client_kill_filter(_type="normal", skipme=True)
    yield


REDIS = {"out of memory": out_of_memory, "hanging": hanging, "flushed": flushed, "connections cut": connections_cut}


def hashes(gateway) -> set[str]:
    return set(gateway.held.key_hashes) if gateway.held else set()


async def deleted(name: str) -> None:
    """Delete a key without any push."""
    await sync_to_async(lambda: ApiKey.objects.filter(name=name).delete())()


@pytest.mark.parametrize("how", REDIS)
async def test_a_member_keeps_its_link_and_its_keys_come_and_go(how, home, clean_redis, monkeypatch):
    monkeypatch.setattr(live.client().connection_pool, "connection_kwargs", fast())
    row, _ = await sync_to_async(members.create_api_key)("first")
    async with cluster(home) as (gateway, _):
        await until(lambda: row.key_hash in hashes(gateway), "the key at the gateway")
        channel = (await sync_to_async(Gateway.objects.get)()).channel
        with REDIS[how](clean_redis):
            await deleted("first")
            await until(lambda: row.key_hash not in hashes(gateway), "the deleted key gone though Redis fails")
            after = await sync_to_async(Gateway.objects.get)()
            assert after.channel == channel and gateway.link.up
        second, _ = await sync_to_async(members.create_api_key)("second")
        await until(lambda: second.key_hash in hashes(gateway), "a key after the trouble")
        assert (await sync_to_async(Gateway.objects.get)()).channel == channel, "the link held"
        await until(lambda: not troubles.current(), "the trouble over")


def fast() -> dict:
    """Redis' connections with time-outs of a second, so that the test takes seconds."""
    return {**live.client().connection_pool.connection_kwargs, "socket_timeout": 1.0}


async def test_members_are_admitted_while_redis_takes_nothing(home, clean_redis):
    with out_of_memory(clean_redis):
        async with cluster(home) as (gateway, _):
            await until(lambda: gateway.link.up and gateway.held, "admission without Redis")
            assert await sync_to_async(Node.objects.filter(state="approved").count)() == 1
            await until(lambda: [one["what"] for one in troubles.current()] == ["redis"], "the trouble noticed")
            assert "maxmemory" in troubles.current()[0]["detail"]


async def test_a_member_that_lost_its_link_joins_while_redis_hangs(home, clean_redis, monkeypatch):
    """The member gives up sooner than all calls' time-outs together take."""
    monkeypatch.setattr(live.client().connection_pool, "connection_kwargs", fast())
    async with cluster(home) as (gateway, node):
        before, taken = await channels(), len(gateway.received)

        async def again() -> bool:
            found = await channels()
            return not found & {*before, ""} and gateway.link.up and node.link.up and len(gateway.received) > taken

        with hanging(clean_redis):
            await until(lambda: troubles.pausing(troubles.REDIS), "the trouble noticed")
            gateway.link.rejoin()
            node.link.rejoin()
            await until(again, "both have joined again, and hold a configuration")


async def channels() -> set[str]:
    return {
        channel
        for kind in (Gateway, Node)
        for channel in await sync_to_async(lambda kind=kind: list(kind.objects.values_list("channel", flat=True)))()
    }


@contextlib.contextmanager
def locked(seconds: float):
    """Another process' transaction holds SQLite's only write lock."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        other = sqlite3.connect(connection.settings_dict["NAME"], timeout=60, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        held.set()
        over.wait(seconds)
        other.execute("ROLLBACK")
        other.close()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield thread
    finally:
        over.set()
        thread.join()


def test_a_new_connection_that_only_reads_does_not_wait_for_a_writer(monkeypatch):
    Node.objects.create(name="n")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**connection.settings_dict["OPTIONS"], "timeout": 0.1})
    connection.close()
    try:
        with locked(600):
            assert Node.objects.get().name == "n"
    finally:
        # The next test's connection waits as long as any.
        connection.close()


async def survives_a_lock(home, monkeypatch, seconds: float, patience: float) -> None:
    row, _ = await sync_to_async(members.create_api_key)("first")
    async with cluster(home) as (gateway, _):
        await until(lambda: row.key_hash in hashes(gateway), "the key at the gateway")
        channel = (await sync_to_async(Gateway.objects.get)()).channel
        # Connections that are opened from now on give up sooner than the lock ends.
        options = {**connection.settings_dict["OPTIONS"], "timeout": patience}
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
        with locked(600):
            noticed, end = False, time.monotonic() + seconds
            while not noticed or time.monotonic() < end:
                assert gateway.link.up
                noticed |= "database" in [one["what"] for one in troubles.current()]
                await asyncio.sleep(0.2)
        await deleted("first")
        await until(lambda: row.key_hash not in hashes(gateway), "a change after the lock")
        assert (await sync_to_async(Gateway.objects.get)()).channel == channel, "the link held"


async def test_a_lock_of_the_database_ends_no_link(home, monkeypatch):
    await survives_a_lock(home, monkeypatch, seconds=3, patience=1)


@pytest.mark.long
async def test_a_lock_that_outlasts_the_databases_patience_ends_no_link(home, monkeypatch):
    await survives_a_lock(home, monkeypatch, seconds=25, patience=20)


@contextlib.contextmanager
def read_only():
    connection.cursor().execute("PRAGMA query_only = 1")
    try:
        yield
    finally:
        connection.cursor().execute("PRAGMA query_only = 0")


@contextlib.contextmanager
def full():
    """No page more than there are (SQLITE_FULL, as with ENOSPC)."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA max_page_count = 1")
        try:
            yield
        finally:
            cursor.execute("PRAGMA max_page_count = 1073741823")


@contextlib.contextmanager
def locked_for_long():
    connection.cursor().execute("PRAGMA busy_timeout = 100")
    try:
        with locked(60):
            yield
    finally:
        connection.cursor().execute("PRAGMA busy_timeout = 20000")


DATABASE = {"locked": locked_for_long, "read-only": read_only, "full": full}


@pytest.mark.parametrize("how", DATABASE)
def test_the_web_says_that_a_change_is_not_stored_and_goes_on_afterwards(how, admin_user):
    client = APIClient()
    client.force_login(admin_user)
    client.get("/api/v1/applications/")
    made = {"name": "a", "slo_ms": 100, "signature": SIGNATURE, "description": "y" * 1000}
    with DATABASE[how]():
        answer = client.post("/api/v1/api-keys/", {"name": "k" * 60}, format="json")
        large = client.post("/api/v1/applications/", made, format="json")
        if how == "full":
            # Small rows may fit into pages that are there.
            assert large.status_code in (201, 507) and answer.status_code in (201, 507)
        else:
            assert (answer.status_code, large.status_code) == (503, 503)
            assert "Nothing was changed, and serving goes on" in large.json()["detail"]
            assert large.headers["Retry-After"]
    assert client.post("/api/v1/api-keys/", {"name": "afterwards"}, format="json").status_code == 201


@pytest.mark.parametrize("how", DATABASE)
def test_planning_goes_on_above_after_a_fault_of_the_database(how, clean_redis):
    world.listening(clean_redis)
    world.node()
    world.variant(world.application(), "quick", 90, 5)
    tasks.plan("manual")
    before = Plan.objects.first()
    with DATABASE[how](), pytest.raises(OperationalError):
        for _ in range(100):
            # Plans take a page sooner or later.
            tasks.plan("manual")
    stored = Plan.objects.first()
    assert stored.wire["version"] == stored.pk
    tasks.plan("manual")
    assert Plan.objects.first().pk > max(before.pk, stored.pk) and requests.plan_row().error == ""


@pytest.mark.parametrize("how", REDIS)
def test_planning_goes_on_after_a_fault_of_redis(how, clean_redis, monkeypatch):
    monkeypatch.setattr(live.client().connection_pool, "connection_kwargs", fast())
    world.listening(clean_redis)
    world.node()
    world.variant(world.application(), "quick", 90, 5)
    tasks.plan("manual")
    before = Plan.objects.first().pk
    with REDIS[how](clean_redis), contextlib.suppress(RedisError):
        tasks.plan("manual")
    world.listening(clean_redis)
    Node.objects.update(**world.seen())
    tasks.plan("manual")
    assert Plan.objects.first().pk > before and requests.plan_row().error == ""


def test_silence_does_not_count_while_messages_cannot_be_stored(clean_redis, later):
    for _ in range(6):
        presence.seen()
        later(presence.ABSENT_S / 2)
    assert presence.silence_counts()
    later(presence.ABSENT_S)
    assert not presence.silence_counts(), "nobody was seen: the control plane itself is away"
    presence.seen()
    assert not presence.silence_counts(), "others may still be coming back"
    for _ in range(6):
        later(presence.ABSENT_S / 2)
        presence.seen()
    assert presence.silence_counts()


def test_statistics_of_long_ago_make_room_when_redis_is_full(clean_redis, monkeypatch):
    monkeypatch.setattr(telemetry, "KEEP_S", 20)
    for _ in range(200):
        telemetry.record(telemetry.NODE_STREAM, {"t": time.time(), "node": "n", "devices": []})
    with out_of_memory(clean_redis):
        with pytest.raises(Exception, match="maxmemory"):
            telemetry.record(telemetry.NODE_STREAM, {"t": time.time(), "node": "n", "devices": []})
        assert clean_redis.xlen(telemetry.NODE_STREAM) == 20


def test_the_console_and_health_say_what_fails(client, admin_client):
    troubles.occurred(ConnectionError("nobody there"))
    assert "Redis fails" in admin_client.get("/").content.decode()
    assert "nobody there" in admin_client.get("/repairs/").content.decode()
    (found,) = client.get("/health/").json()["troubles"]
    assert found["what"] == "redis"
    troubles.over(troubles.REDIS)
    assert "Redis fails" not in admin_client.get("/repairs/").content.decode()
