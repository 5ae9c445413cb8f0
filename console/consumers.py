"""Websockets of browsers: the live page's events, with repeated permission checks.

Close codes: 4400 a message that is not a command, 4401 not (or no longer) signed in with a role, 4404 no such path,
4408 the browser reads too slowly, 1003 binary data, 1009 a message above :data:`MAX_COMMAND_BYTES`, 1011 Redis or the
database is away. Except to a slow browser, an ``error`` event says why before the connection closes.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import weakref
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import DatabaseError
from redis.exceptions import RedisError

from console import coalescing, slimming
from console.outbox import SNAPSHOT, BrowserOutbox
from console.snapshot import snapshot
from registry import clock
from registry.access import table
from registry.access.roles import AccessRole, role_of
from scheduler import live
from scheduler.repairs import listing
from workers import log

logger = log.get("console")

CLOSE_MALFORMED = 4400
CLOSE_UNAUTHORIZED = 4401
CLOSE_UNKNOWN_PATH = 4404
CLOSE_TOO_SLOW = 4408
CLOSE_BINARY = 1003
CLOSE_INTERRUPTED = 1011
CLOSE_TOO_LARGE = 1009

MESSAGES = table.BROWSER_SOCKETS["ws/console/live/"]
MAX_COMMAND_BYTES = 4096
#: a user who signs out or loses staff status is cut off within this time
RECHECK_S = 5.0
SEND_TIMEOUT_S = 20.0
#: two whole states to one browser are at least this far apart
RESYNC_EVERY_S = 1.0
#: how long the first browser waits until events can be heard
LISTEN_WITHIN_S = 5.0
#: how often the wall clock is compared with the steady one
CLOCK_EVERY_S = 10.0
#: a wall clock that differs by more from the steady one than before was set
STEP_S = 2.0
#: the list of repairs is compared with what the browser shows so often
REPAIRS_EVERY_S = 3.0


class BrowserCommand(msgspec.Struct, forbid_unknown_fields=True):
    """A browser's message."""

    command: Literal["snapshot", "ping"]


async def unknown_path(scope, receive, send) -> None:
    """Accept a websocket, so that the code reaches the client, and close it; needs neither Redis nor a database."""
    if (await receive())["type"] != "websocket.connect":
        return
    detail = "no websocket at this path"
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": json.dumps(_error(detail))})
    await send({"type": "websocket.close", "code": CLOSE_UNKNOWN_PATH, "reason": detail})


class LiveConsumer:
    """One browser's live page: a snapshot, then everything as it happens.

    A page that shows no figures of devices leaves nodes' seconds out with ``?seconds=0``.
    """

    def __init__(self, scope: dict[str, Any], send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        # Without Channels' layer: all browsers of a process get the same events (:class:`Browsers`).
        self.seconds = b"seconds=0" not in scope.get("query_string", b"").split(b"&")
        self._session, self._socket = scope.get("session"), send
        self._outbox = BrowserOutbox()
        self._wake = asyncio.Event()
        self._checked_at = 0.0
        self._asked_at = -math.inf
        self._answering: asyncio.TimerHandle | None = None
        self._closing = False
        self._role = AccessRole.ANYONE
        self._repairs: dict[str, Any] | None = None

    @classmethod
    async def serve(cls, scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send) -> None:
        """A connection is accepted, follows all events, gives commands, and ends."""
        browser, tasks = cls(scope, send), []
        try:
            await receive()
            await send({"type": "websocket.accept"})
            if await browser._joined():
                browser.resync()
                tasks = [asyncio.create_task(each) for each in (browser._send_all(), browser._follow_repairs())]
            while (event := await receive())["type"] == "websocket.receive":
                await browser._take(event.get("text"))
        finally:
            browser._closing = True
            for task in tasks:
                task.cancel()
            if browser._answering is not None:
                browser._answering.cancel()
            await browsers().leave(browser)
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _joined(self) -> bool:
        if not await self._permitted():
            await self._refuse(CLOSE_UNAUTHORIZED, "sign in with an account that has a role first")
            return False
        try:
            await browsers().join(self)
        except TimeoutError as error:
            await self._interrupted(error)
            return False
        return True

    def resync(self) -> None:
        self._outbox.restart()
        self._wake.set()

    def put(self, message: dict[str, Any]) -> None:
        self._outbox.put(message)
        self._wake.set()

    async def _follow_repairs(self) -> None:
        """Send the list of repairs when it has changed; few causes have an event."""
        while not self._closing:
            # All wake together.
            await asyncio.sleep(REPAIRS_EVERY_S - time.monotonic() % REPAIRS_EVERY_S)
            known, now = self._repairs, await _repairs(self._role)
            if known is not None and now is not None and now != known:
                self._repairs = now
                self.put({"event": "repairs", "data": now})

    async def _take(self, text: str | None) -> None:
        if self._closing:
            return
        if text is None:
            return await self._refuse(CLOSE_BINARY, "commands are JSON text, not binary data")
        if len(text.encode(errors="replace")) > MAX_COMMAND_BYTES:
            return await self._refuse(CLOSE_TOO_LARGE, f"a command has at most {MAX_COMMAND_BYTES} bytes")
        try:
            command = msgspec.json.decode(text, type=BrowserCommand).command
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            return await self._refuse(CLOSE_MALFORMED, f"not a command: {error}")
        if command not in MESSAGES or self._role < MESSAGES[command]:
            await self._refuse(CLOSE_UNAUTHORIZED, f"{command}: the role {self._role.label} does not permit it")
        elif command == "ping":
            self.put({"event": "pong", "data": {"now": time.time()}})
        elif self._answering is None:
            wait_s = self._asked_at + RESYNC_EVERY_S - time.monotonic()
            self._answering = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._answer)

    def _answer(self) -> None:
        self._answering, self._asked_at = None, time.monotonic()
        self.put(SNAPSHOT)

    async def _send_all(self) -> None:
        """The one task that sends, so that a slow browser delays nothing but itself."""
        try:
            while not self._closing:
                await self._wake.wait()
                self._wake.clear()
                while self._outbox and not self._closing:
                    if time.monotonic() - self._checked_at > RECHECK_S and not await self._permitted():
                        return await self._refuse(CLOSE_UNAUTHORIZED, "you have been signed out")
                    await self._send_next()
        except TimeoutError:
            self._closing = True
            logger.warning("browser_too_slow", dropped=self._outbox.dropped)
            await self._close(CLOSE_TOO_SLOW, "the browser reads too slowly")
        except (OSError, RedisError, DatabaseError) as error:
            await self._interrupted(error)

    async def _interrupted(self, error: Exception) -> None:
        """Redis or the database is away: the browser tries again with back-off."""
        logger.warning("live_page_interrupted", error=str(error))
        await self._refuse(CLOSE_INTERRUPTED, "the live state cannot be read now")

    async def _send_next(self) -> None:
        message = self._outbox.take()
        if message is SNAPSHOT:
            overflowed, self._outbox.overflowed = self._outbox.overflowed, False
            await self._send_snapshot()
            # There may be another overflow while the whole state is sent.
            await asyncio.sleep(RESYNC_EVERY_S if overflowed or self._outbox.overflowed else 0)
        elif message is not None:
            await self._send_in_time(message)

    async def _send_snapshot(self) -> None:
        text = await _snapshot_text(None)
        self._repairs = await _repairs(self._role) or self._repairs
        repairs = json.dumps(self._repairs)
        text = f'{{"event":"snapshot","data":{text[:-1]},"repairs":{repairs}}}}}'
        await self._send_in_time({"event": "snapshot", "text": text})

    async def _send_in_time(self, message: dict[str, Any]) -> None:
        """Send a message. Raises TimeoutError: the browser is too slow, however long it took to make."""
        await asyncio.wait_for(self._send(message), SEND_TIMEOUT_S)

    async def _send(self, message: dict[str, Any]) -> None:
        text = message["text"] if "text" in message else json.dumps(message, separators=(",", ":"))
        await self._socket({"type": "websocket.send", "text": text})

    async def _refuse(self, code: int, reason: str) -> None:
        self._closing = True
        await self._send(_error(reason))
        await self._close(code, reason.encode()[:120].decode(errors="ignore"))

    async def _close(self, code: int, reason: str) -> None:
        await self._socket({"type": "websocket.close", "code": code, "reason": reason})

    async def _permitted(self) -> bool:
        # All consoles are due together, so that one look serves them all.
        self._checked_at = time.monotonic() - (time.monotonic() % RECHECK_S if RECHECK_S else 0)
        if self._session is None or self._session.session_key is None:
            return False
        self._role = await _role_now(self._session.session_key)
        return self._role >= MESSAGES["connect"]


class Browsers:
    """The browsers of an event loop, and the events that all of them follow."""

    def __init__(self) -> None:
        self._joined: set[LiveConsumer] = set()
        self._heard = asyncio.Event()
        self._tasks: list[asyncio.Task] = []

    async def join(self, browser: LiveConsumer) -> None:
        """Have a browser get all events from now on. Raises TimeoutError: Redis does not answer."""
        self._joined.add(browser)
        if not self._tasks:
            self._heard.clear()
            self._tasks = [asyncio.create_task(each) for each in (self._listen(), self._follow_clock())]
        await asyncio.wait_for(self._heard.wait(), LISTEN_WITHIN_S)

    async def leave(self, browser: LiveConsumer) -> None:
        self._joined.discard(browser)
        if not self._joined:
            ended, self._tasks = self._tasks, []
            for task in ended:
                await live.cancel(task)

    async def _listen(self) -> None:
        async for text in live.listen(live.EVENTS):
            if text is not None:
                self._put(text)
            elif self._heard.is_set():
                self._resync()
            self._heard.set()

    def _put(self, text: str) -> None:
        found = json.loads(text)
        if isinstance(found, dict):
            message = {"event": found["event"], "text": text}
            messages = {True: message, False: message}
        else:
            messages = {seconds: _several(found, seconds) for seconds in {browser.seconds for browser in self._joined}}
        for browser in self._joined:
            if (message := messages[browser.seconds]) is not None:
                browser.put(message)

    def _resync(self) -> None:
        for browser in self._joined:
            browser.resync()

    async def _follow_clock(self) -> None:
        """Send the state again when the wall clock was set: pages' time axes follow it."""
        ahead = clock.wall() - clock.steady()
        while True:
            await asyncio.sleep(CLOCK_EVERY_S)
            if abs(clock.wall() - clock.steady() - ahead) > STEP_S:
                ahead = clock.wall() - clock.steady()
                self._resync()


def _several(events: list[dict[str, Any]], seconds: bool) -> dict[str, Any] | None:
    """The message with these events, nodes' ``seconds`` perhaps left out; None: there is nothing to send."""
    wanted = events if seconds else [event for event in events if event["event"] != "node_second"]
    slim = [slimming.slim(event) for event in wanted]
    if not slim:
        return None
    return {"event": "events", "text": msgspec.json.encode({"event": "events", "data": slim}).decode()}


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Browsers] = weakref.WeakKeyDictionary()


def browsers() -> Browsers:
    return _by_loop.setdefault(asyncio.get_running_loop(), Browsers())


def _roles(keys: frozenset[str]) -> dict[str, AccessRole]:
    """Return the roles of the accounts that these sessions belong to.

    Sessions are read as they are stored now. The role is nobody's where a session has ended.
    """
    store, found = import_module(settings.SESSION_ENGINE).SessionStore, {}
    for key in keys:
        fresh = store(key)
        found[key] = AccessRole.ANYONE if fresh.is_empty() else role_of(get_user(SimpleNamespace(session=fresh)))
    return found


_role_now = coalescing.by_key(database_sync_to_async(_roles))


_snapshot_text = coalescing.by_key(
    database_sync_to_async(lambda keys: dict.fromkeys(keys, msgspec.json.encode(snapshot()).decode()))
)


def _summaries(roles: frozenset[AccessRole]) -> dict[AccessRole, dict[str, Any] | None]:
    try:
        shared = listing.shared()
        return {role: listing.summary(shared, role) for role in roles}
    except Exception:
        # A fault in the list must cost pages their count of repairs, not the tasks that send everything else.
        logger.exception("repairs_not_told")
        return dict.fromkeys(roles)


_repairs = coalescing.by_key(database_sync_to_async(_summaries))


def _error(detail: str) -> dict[str, Any]:
    return {"event": "error", "data": {"detail": detail}}
