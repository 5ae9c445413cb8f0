"""A small REST client."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from workers.settings import Settings
from workers.trust.control_plane import client_context


class RestError(Exception):
    """The appliance refused a step, or cannot be reached; says which, and why."""


class Unreachable(RestError):
    """No answer at all; trying again may help."""


@contextmanager
def client(base_url: str, token: str, trust: ssl.SSLContext | None = None) -> Iterator[httpx2.Client]:
    """A client for ``{base_url}/api/v1``. Raises Unreachable."""
    headers = {"Authorization": f"Bearer {token}"}
    verify = trust or client_context(Settings.from_environ(), base_url) or False
    # trust_env: a proxy that the environment names must not see the token, nor stand before loopback
    with httpx2.Client(
        base_url=base_url.rstrip("/") + "/api/v1", headers=headers, timeout=60, trust_env=False, verify=verify
    ) as rest:
        try:
            yield rest
        except httpx2.TransportError as error:
            raise Unreachable(f"{base_url} cannot be reached: {error!r}") from error


def expect(response: httpx2.Response, what: str, *statuses: int) -> httpx2.Response:
    """The response, if its status is one of those expected. Raises RestError."""
    if response.status_code not in statuses:
        raise RestError(f"{what}: HTTP {response.status_code}: {response.text[:1000]}")
    return response


def pages(rest: httpx2.Client, path: str) -> list[dict]:
    """All results of a list, page after page. Raises RestError."""
    results: list[dict] = []
    following: str | None = path
    while following:
        answer = expect(rest.get(following), f"GET {path}", 200).json()
        results += answer["results"]
        following = answer.get("next")
    return results
