"""Heads of requests that Django and PostgreSQL cannot take, over the whole web application."""

from __future__ import annotations

import os
import subprocess

import httpx
import pytest
from channels.db import database_sync_to_async

from appliance.asgi import application as web
from tests import postgresql
from tests.accounts import bearer
from tests.forked import ForkedProcess, of_commands

ADDRESSES = {
    "a name": "/api/v1/applications/a%00b/",
    "a device": "/api/v1/devices/box%2Fcpu0%00/",
    "a filter": "/api/v1/profiles/?application=a%00",
    "a page": "/applications/a%00b/",
    "a form's field": "/keys/?edit=%00",
}
#: names that Python knows, of text or not, and one that nobody does
CHARSETS = ("rot13", "base64", "idna", "punycode", "undefined", "utf-16", "klingon", "\\0")


async def ask(method: str, address: str, headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(web, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return await http.request(method, address, headers=headers)


def refused(response: httpx.Response, status: int, text: str) -> None:
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


@pytest.mark.skipif(not postgresql.program("initdb"), reason="PostgreSQL is not installed")
def test_an_account_whose_name_has_nul_is_none_on_postgresql(tmp_path):
    code = (
        "from rest_framework.test import APIClient; from tests.accounts import account, bearer\n"
        "client = APIClient(raise_request_exception=False)\n"
        "client.credentials(HTTP_AUTHORIZATION=bearer(account('operator')))\n"
        "for user in ('a\\0b', ['a\\0'], 'nobody'):\n"
        "    answer = client.post('/api/v1/api-tokens/', {'name': 'k', 'user': user, 'role': 'viewer'}, format='json')\n"
        "    print(answer.status_code, answer.json()['errors'][0]['field'])\n"
    )
    with postgresql.running() as server:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}
        own = {"NEREUS_HOME": str(tmp_path), "NEREUS_DATABASE_URL": server.url, "NEREUS_ALLOWED_HOSTS": "testserver"}

        def manage(*arguments: str) -> ForkedProcess:
            return of_commands().start("manage.py", *arguments, env=kept | own, stdout=subprocess.PIPE, text=True)

        assert manage("migrate", "-v", "0").wait() == 0
        found = manage("shell", "-v", "0", "-c", code).stdout.read()
    assert [line for line in found.splitlines() if line.startswith("4")] == ["400 user"] * 3
