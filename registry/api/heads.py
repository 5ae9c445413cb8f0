"""Rejects invalid request heads, and takes addresses with or without their last slash."""

from __future__ import annotations

import codecs
import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.utils.http import parse_header_parameters

from registry.api.problems import MEDIA_TYPE, body

#: encodings of query strings, forms and JSON that are read, as Python names them
CHARSETS = frozenset({"utf-8", "ascii", "iso8859-1"})


class HeadCheck:
    """ASGI middleware that refuses NUL in addresses, and odd charsets.

    PostgreSQL compares NUL with nothing. Django reads query strings in the charset that the content type names, though
    not all of Python's are of text. Addresses of the REST API end in a slash: one without it gets it, as a redirect
    would turn many clients' POST into a GET.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        if scope["path"] == "/api" or (scope["path"].startswith("/api/") and not scope["path"].endswith("/")):
            scope = {**scope, "path": f"{scope['path']}/"}
        problem = _problem(scope)
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await answer(problem, send)


def _problem(scope: dict[str, Any]) -> dict[str, Any] | None:
    if "\0" in scope["path"] or b"%00" in scope.get("query_string", b""):
        return body(400, "The address has a NUL character (%00), which is in no name.")
    headers = dict(scope["headers"])
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if scope["path"].startswith("/api/") and encoding not in ("", "identity"):
        return body(415, f"Content-Encoding: is {encoding[:60]!r}; send the body as it is, not compressed.")
    kind = headers.get(b"content-type", b"").decode("latin-1")
    charset = parse_header_parameters(kind)[1].get("charset", "utf-8")
    try:
        known = codecs.lookup(charset).name in CHARSETS
    except (LookupError, ValueError):
        known = False
    return None if known else body(415, f"Content-Type: the charset is {charset[:60]!r}; send UTF-8.")


async def answer(problem: dict[str, Any], send: Callable, headers: dict[str, str] | None = None) -> None:
    content = json.dumps(problem).encode()
    head = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
        *((name.lower().encode(), value.encode()) for name, value in (headers or {}).items()),
    ]
    await send({"type": "http.response.start", "status": problem["status"], "headers": head})
    await send({"type": "http.response.body", "body": content})
