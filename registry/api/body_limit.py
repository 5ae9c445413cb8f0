"""Limits on request bodies, before Django spools them to disk under ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from types import SimpleNamespace
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied

from registry import uploads
from registry.access import table
from registry.access.roles import AccessRole, caller_role
from registry.api.authentication import token_of
from registry.api.heads import answer
from registry.api.parsing import MAX_JSON_BYTES, MULTIPART_SLACK
from registry.api.problems import describe
from registry.errors import Busy, Conflict, TooSlow, UploadTooLarge
from workers import log

logger = log.get("registry.api")

_UPLOAD = re.compile(r"/api/v1/applications/([^/]+)/(variants|validation-set)/")
#: bytes that any caller may send
SMALL = MAX_JSON_BYTES + MULTIPART_SLACK
#: uploads of more than :data:`SMALL` bytes that are received at once
UPLOADS = 2
#: seconds that a sender may be silent, and the bytes/s that it must send on average after as long
SILENCE_S = 30.0
LEAST_RATE = 16 * 1024
#: seconds between two reports of how far an upload is
REPORT_EVERY_S = 1.0


class BodyLimit:
    """ASGI middleware: bounds bodies, by announcement or by count.

    A body has at most ``limit`` bytes and what multipart adds; more than :data:`SMALL` bytes are read only from callers
    that may upload there. Beyond, the response is a problem, and the connection is closed rather than drained.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], limit: int, silence_s: float = SILENCE_S):
        self._app = app
        self.limit = limit
        self.silence_s = silence_s
        #: large uploads that are being received
        self.uploads = 0

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        # A copy: the body's end puts the length into it that chunks have not announced.
        scope = {**scope, "headers": list(scope["headers"])}
        body = _Body(self, scope, receive)
        answering = False

        async def noted(message: dict[str, Any]) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            announced = dict(scope["headers"]).get(b"content-length", b"")
            # No number of more digits is a length that anything here accepts.
            await body.expect(int(announced[:20]) if announced.isdigit() else 0)
            await self._app(scope, body.receive, noted)
        except _Refused as refused:
            if not answering:
                await _answer(refused.__cause__, send)
        except Exception as error:
            if answering:
                raise
            # Django spools bodies outside of its handlers of errors.
            logger.error("request_failed", path=scope["path"], exc_info=error)
            await body.drain()
            await _answer(error, send)
        finally:
            body.leave()
            await body.end()


class _Refused(Exception):
    """The body is not received; the cause says why."""


class _Body:
    def __init__(self, limits: BodyLimit, scope: dict[str, Any], receive: Callable):
        self._limits = limits
        self._scope = scope
        self._receive = receive
        match = _UPLOAD.fullmatch(scope["path"])
        #: application and kind of an upload
        self._upload: tuple[str, str] | None = match.groups() if match else None
        self._record: uploads.Upload | None = None
        self._reported_at = 0.0
        self._seen = 0
        self._began = time.monotonic()
        self._admitted = False
        self._ended = False

    async def expect(self, size: int) -> None:
        """Check the size so far, or as announced. Raises _Refused."""
        try:
            if size > SMALL and self._upload and not self._admitted:
                # Who is permitted less than that learns nothing of limits.
                application, kind = self._upload
                caller = await _check_caller(kind, self._scope)
                if self._limits.uploads >= UPLOADS:
                    raise Busy(f"{UPLOADS} large uploads are being received, the most at once; try again", 10)
                self._limits.uploads += 1
                self._admitted = True
                self._record = uploads.Upload(application, caller, size if not self._seen else 0)
                uploads.begin(self._record)
            if self._upload and size > self._limits.limit + MULTIPART_SLACK:
                raise UploadTooLarge("file", self._limits.limit, "NEREUS_MAX_UPLOAD_MB")
            if not self._upload and size > min(self._limits.limit, MAX_JSON_BYTES) + MULTIPART_SLACK:
                raise UploadTooLarge("body", MAX_JSON_BYTES)
        except Exception as error:
            raise _Refused from error

    async def receive(self) -> dict[str, Any]:
        if self._ended:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._limits.silence_s)
        except TimeoutError:
            raise _Refused from TooSlow(f"no data for {self._limits.silence_s:g} s")
        self._seen += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        await self.expect(self._seen)
        await self._tell()
        lasted = time.monotonic() - self._began
        if not self._ended and lasted > self._limits.silence_s and self._seen < LEAST_RATE * lasted:
            raise _Refused from TooSlow(f"less than {LEAST_RATE} bytes/s on average")
        if self._ended:
            self.leave()
            # Django and the REST framework read as many bytes as the head announces: none of a chunked body.
            others = [line for line in self._scope["headers"] if line[0] != b"content-length"]
            self._scope["headers"] = [*others, (b"content-length", str(self._seen).encode())]
        return message

    async def drain(self) -> None:
        """Read the rest: a client that still sends could lose the answer."""
        with contextlib.suppress(_Refused):
            while not self._ended:
                await self.receive()

    async def _tell(self) -> None:
        """Say how far a large upload is. Raises _Refused where somebody cancelled it."""
        now = time.monotonic()
        if self._record is None or self._ended or now - self._reported_at < REPORT_EVERY_S:
            return
        self._reported_at, self._record.received = now, self._seen
        by = await asyncio.to_thread(uploads.moved, self._record)
        if by:
            raise _Refused from Conflict(f"the upload was cancelled by {by}", "file")

    async def end(self) -> None:
        if self._record is not None:
            await asyncio.to_thread(uploads.ended, self._record)

    def leave(self) -> None:
        if self._admitted:
            self._admitted = False
            self._ended = True
            self._limits.uploads -= 1


async def _check_caller(name: str, scope: dict[str, Any]) -> str:
    """The caller's account, if it may upload at the address of this name.

    Raises AuthenticationFailed, NotAuthenticated or PermissionDenied.
    """
    caller = await database_sync_to_async(_caller)(dict(scope["headers"]))
    role = await database_sync_to_async(caller_role)(caller)
    if role == AccessRole.ANYONE:
        error = NotAuthenticated()
        error.auth_header = 'Bearer realm="nereus"'
        raise error
    if not table.permits(role, name, scope["method"]):
        raise PermissionDenied(f"The role {role.label} does not permit uploads here.")
    return caller.user.get_username()


def _caller(headers: dict[bytes, bytes]) -> SimpleNamespace:
    """Account and token, as the REST framework finds them."""
    token = token_of(headers.get(b"authorization", b""))
    if token is not None:
        return SimpleNamespace(user=token.user, auth=token)
    try:
        cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        cookie = None
    session = SessionStore(cookie.value if cookie else None)
    return SimpleNamespace(user=get_user(SimpleNamespace(session=session)), auth=None)


async def _answer(fault: BaseException | None, send: Callable) -> None:
    if isinstance(fault, AuthenticationFailed):
        fault.auth_header = 'Bearer realm="nereus"'
    problem, headers = describe(fault)
    await answer(problem, send, headers)
