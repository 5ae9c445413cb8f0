"""The actor of a change.

It is the account of the present request, a command's user, or the appliance itself.
"""

from __future__ import annotations

import contextlib
import getpass
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

SYSTEM = "system"


class Origin(NamedTuple):
    """The actor, the way of acting, and the address (empty: this box)."""

    actor: str
    way: str
    address: str = ""


_request: ContextVar[Any] = ContextVar("audit_request", default=None)
_acting: ContextVar[Origin | None] = ContextVar("audit_acting", default=None)


class AuditMiddleware:
    def __init__(self, get_response):
        self._get_response = get_response

    def __call__(self, request):
        held = _request.set(request)
        try:
            return self._get_response(request)
        finally:
            _request.reset(held)


@contextlib.contextmanager
def acting(actor: str, way: str, address: str = "") -> Iterator[None]:
    held = _acting.set(Origin(actor, way, address))
    try:
        yield
    finally:
        _acting.reset(held)


def origin() -> Origin:
    known = _acting.get()
    if known is not None:
        return known
    request = _request.get()
    if request is not None:
        return _of_request(request)
    return _of_process(sys.argv)


def _of_request(request: Any) -> Origin:
    # The REST framework leaves user and token on Django's request.
    user, token = getattr(request, "user", None), getattr(request, "auth", None)
    actor = user.get_username() if user is not None and user.is_authenticated else "anonymous"
    if request.path.startswith("/api/"):
        way = "REST" if token is None else f"REST, token {token.name}"
    else:
        way = "admin site" if request.path.startswith("/admin/") else "console"
    return Origin(actor[:150], way, request.META.get("REMOTE_ADDR") or "")


def _of_process(arguments: list[str]) -> Origin:
    program = Path(arguments[0])
    command = program.name in ("manage.py", "nereus") or program.parts[-2:] == ("appliance", "__main__.py")
    if not command or len(arguments) < 2:
        return Origin(SYSTEM, "appliance")
    if arguments[1] in ("up", "prepare"):
        return Origin(SYSTEM, "start")
    return Origin(getpass.getuser()[:150], f"command {arguments[1]}"[:120])
