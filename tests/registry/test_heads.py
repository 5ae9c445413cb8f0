"""Heads of requests that Django and PostgreSQL cannot take are refused."""

from __future__ import annotations

import httpx2
import pytest
from channels.db import database_sync_to_async

from appliance.asgi import application as web
from tests.accounts import bearer

ADDRESSES = {
    "a name": "/api/v1/applications/a%00b/",
    "a device": "/api/v1/devices/box%2Fcpu0%00/",
    "a filter": "/api/v1/profiles/?application=a%00",
    "a page": "/applications/a%00b/",
    "a form's field": "/keys/?edit=%00",
}
#: names that Python knows, of text or not, and one that nobody does
CHARSETS = ("rot13", "base64", "idna", "punycode", "undefined", "utf-16", "klingon", "\\0")


async def ask(method: str, address: str, headers: dict[str, str]) -> httpx2.Response:
    transport = httpx2.ASGITransport(web, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return await http.request(method, address, headers=headers)


def refused(response: httpx2.Response, status: int, text: str) -> None:
    assert response.status_code == status, response.text[:300]
    assert response.headers["content-type"] == "application/problem+json"
    assert text in response.json()["detail"]


@pytest.mark.parametrize("what", ADDRESSES)
async def test_nul_in_an_address_is_refused(what):
    refused(await ask("GET", ADDRESSES[what], {}), 400, "NUL")


@pytest.mark.parametrize("charset", CHARSETS)
async def test_another_charset_than_utf_8_is_refused(charset):
    kind = {"content-type": f"application/json; charset={charset}"}
    refused(await ask("GET", "/api/v1/audit/?ref=abc", kind), 415, "send UTF-8")
    refused(await ask("POST", "/login/", kind), 415, charset[:5])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "us-ascii", "latin1"])
async def test_usual_charsets_are_read(charset, operator):
    headers = {"authorization": await database_sync_to_async(bearer)(operator)}
    kind = {"content-type": f"application/json; charset={charset}", **headers}
    assert (await ask("GET", "/api/v1/applications/?limit=1", kind)).status_code == 200
