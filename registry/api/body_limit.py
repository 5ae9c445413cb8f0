"""Limit on request bodies before Django spools them to disk (as it does under ASGI)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from registry.api.parsing import MAX_JSON_BYTES, MULTIPART_SLACK
from registry.api.problems import MEDIA_TYPE, describe
from registry.errors import UploadTooLarge

_UPLOAD = re.compile(r"/api/v1/applications/[^/]+/(variants|validation-set)/")


class _Passed(Exception):
    pass


class BodyLimit:
    """ASGI middleware: at most ``limit`` bytes a body (and what multipart adds), by announcement or by count; else 413
    as a problem, with the connection closed rather than drained."""

    def __init__(self, app: Callable[..., Awaitable[None]], limit: int):
        self._app = app
        self._limit = limit

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._most(scope)
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > most:
            await self._refuse(scope, send)
            return
        seen = 0
        answering = False

        async def counted() -> dict[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise _Passed
            return message

        async def noted(message: dict[str, Any]) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except _Passed:
            if not answering:
                await self._refuse(scope, send)

    def _uploads(self, scope: dict[str, Any]) -> bool:
        """Whether somebody who at least claims to be known sends a file to where files go."""
        names = {name for name, _ in scope["headers"]}
        return bool(_UPLOAD.fullmatch(scope["path"])) and bool(names & {b"authorization", b"cookie"})

    def _most(self, scope: dict[str, Any]) -> int:
        return (
            self._limit + MULTIPART_SLACK
            if self._uploads(scope)
            else min(self._limit, MAX_JSON_BYTES) + MULTIPART_SLACK
        )

    async def _refuse(self, scope: dict[str, Any], send: Callable) -> None:
        if self._uploads(scope):
            fault = UploadTooLarge("file", self._limit, "NEREUS_MAX_UPLOAD_MB")
        else:
            fault = UploadTooLarge("body", MAX_JSON_BYTES)
        problem, _ = describe(fault)
        content = json.dumps(problem).encode()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": content})
