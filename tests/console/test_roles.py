"""Every address, method and websocket message, by every role and by none, is answered as the access table says."""

from __future__ import annotations

import functools
import re
import typing

import msgspec
import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib import admin
from django.core.cache import cache
from django.test import Client
from django.urls import URLPattern, get_resolver

from appliance import asgi
from console.consumers import BrowserCommand
from registry.access import table
from registry.access.roles import BY_LABEL, AccessRole
from registry.models import Gateway, JoinToken, Node, hash_secret
from tests.accounts import account, bearer
from tests.console.test_live import Browser, cookie
from tests.running import ROOT
from tools.access_doc import addresses, text

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
CALLERS = (None, "none", *BY_LABEL)
all_addresses = functools.cache(addresses)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


@pytest.fixture
def fresh():
    cache.clear()


def role_of(caller: str | None) -> AccessRole:
    return BY_LABEL.get(caller, AccessRole.ANYONE)


def path(name: str) -> str:
    filled = re.sub(r"<digest>", "0" * 64, all_addresses()[name])
    return re.sub(r"<\w+>", lambda found: "7" if found[0] in ("<pk>", "<version>", "<id>") else "nothing", filled)


def session(caller: str | None, **more) -> Client:
    client = Client(**more)
    if caller is not None:
        client.force_login(account("someone", None if caller == "none" else caller))
    return client


def test_every_address_has_an_entry_and_every_entry_an_address():
    found = addresses()
    own = {name for name in found if not name.startswith("admin:")}
    assert own == {*table.REST, *table.PAGES}
    for name in sorted(found.keys() - own):
        assert table.least(name, "GET") is not None or name.endswith(("_add", "_delete")), f"{name}: no entry"
    assert table.ADMIN_SITE.keys() <= found.keys()
    registered = {f"{model._meta.app_label}.{model._meta.model_name}" for model in admin.site._registry}
    assert registered == table.MODELS.keys()


def unnamed(patterns, where: str = "") -> list[str]:
    lines = []
    for pattern in patterns:
        here = where + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            lines += [here] if pattern.name is None else []
        else:
            lines += unnamed(pattern.url_patterns, here)
    return lines


def test_addresses_without_a_name_are_the_admin_sites_redirects():
    assert all(
        re.match(r"admin/(\(\?P<url>|\w+/\w+/<path:object_id>/)", line) for line in unnamed(get_resolver().url_patterns)
    )


@pytest.mark.parametrize("caller", CALLERS)
def test_rest_answers_roles_as_the_table_says(caller):
    client, role = Client(), role_of(caller)
    headers = {}
    if caller is not None:
        # The token alone limits these: the account is an operator, except for the one without a role.
        user = account("someone", None if caller == "none" else "operator")
        headers["authorization"] = bearer(user, "operator" if caller == "none" else caller)
    for name, methods in table.REST.items():
        for method in METHODS:
            cache.clear()
            answer = client.generic(method, path(name), b"{}", "application/json", headers=headers)
            entry = methods.get("GET" if method == "HEAD" else method)
            shown = f"{method} {name} as {caller}: {answer.status_code}"
            if caller is None:
                assert answer.status_code == 401, shown
            elif entry is None:
                assert answer.status_code == (405 if role > AccessRole.ANYONE else 403), shown
            elif role < entry:
                assert answer.status_code == 403, shown
            else:
                assert answer.status_code not in (401, 403, 405) and answer.status_code < 500, shown


@pytest.mark.parametrize("caller", CALLERS)
def test_pages_answer_roles_as_the_table_says(caller):
    client, role = session(caller), role_of(caller)
    for name, methods in table.PAGES.items():
        if methods.get("GET") == AccessRole.ANYONE or name in ("console:logout", "metrics"):
            continue
        for method in METHODS:
            answer = client.generic(method, path(name))
            shown = f"{method} {name} as {caller}: {answer.status_code}"
            if role == AccessRole.ANYONE:
                assert answer.status_code == 302 and answer.url == f"/login/?next={path(name)}", shown
            elif table.permits(role, name, method):
                assert answer.status_code in (200, 302, 404), shown
            else:
                assert answer.status_code == 403, shown
                assert method == "HEAD" or b"role does not permit" in answer.content, shown


@pytest.mark.parametrize("caller", CALLERS)
def test_the_admin_site_answers_roles_as_the_table_says(caller):
    client, role = session(caller), role_of(caller)
    for name in addresses():
        if not name.startswith("admin:") or name in ("admin:login", "admin:logout"):
            continue
        answer, needed = client.get(path(name)), table.least(name, "GET")
        shown = f"{name} as {caller}: {answer.status_code}"
        if role == AccessRole.ANYONE:
            assert answer.status_code == 302 and "login" in answer.url, shown
        elif needed is None or role < needed:
            assert answer.status_code == 403, shown
        else:
            # A search without its parameters is forbidden to everybody.
            assert answer.status_code in (200, 302, 404) or name == "admin:autocomplete", shown


@pytest.mark.parametrize("caller", CALLERS)
def test_metrics_are_for_viewers_and_for_this_box(caller):
    client = session(caller)
    assert client.get("/metrics").status_code == 200, "from this box"
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    answer = client.get("/metrics", **elsewhere)
    assert answer.status_code == (200 if role_of(caller) >= AccessRole.VIEWER else 401)
    health = client.get("/health/", **elsewhere)
    assert health.json()["status"] == "ok" and ("checks" in health.json()) == (role_of(caller) >= AccessRole.VIEWER)
    if role_of(caller) >= AccessRole.VIEWER:
        token = bearer(account("other", "viewer"), "viewer")
        assert Client().get("/metrics", headers={"authorization": token}, **elsewhere).status_code == 200
        assert Client().get("/metrics", headers={"authorization": "Bearer x"}, **elsewhere).status_code == 401


@pytest.mark.parametrize("caller", CALLERS)
def test_pages_show_no_button_and_no_form_that_the_role_may_not_use(caller, cluster):
    role = role_of(caller)
    if role == AccessRole.ANYONE:
        return
    JoinToken.objects.create(name="rack", token_hash=hash_secret("x"))
    client, calls = session(caller), set()
    resolver = get_resolver()
    for page in (
        *("/", "/plans/", "/nodes/", "/keys/", "/access/", "/repairs/", "/applications/", "/applications/digits/"),
        *(["/applications/digits/upload/"] if role >= AccessRole.OWNER else []),
    ):
        html = client.get(page).content.decode()
        for tag in re.findall(r"<(?:button|form)[^>]*data-(?:call|api|upload)[^>]*>", html):
            address = re.search(r'data-(?:call|api|upload)="([^"?]+)', tag)[1]
            method = (re.search(r'data-method="(\w+)"', tag) or [None, "POST"])[1]
            calls.add((method, resolver.resolve(address).view_name))
        for link in re.findall(r'<a [^>]*href="(/[a-z]+/)"', html):
            assert table.permits(role, resolver.resolve(link).view_name, "GET"), f"{page} links to {link}"
    assert all(table.permits(role, name, method) for method, name in calls)
    expected = {"viewer": 0, "model owner": 5, "operator": 12}
    assert len(calls) >= expected[caller], calls


def test_an_owner_leaves_weight_and_floor_to_operators(cluster):
    owner = {"authorization": bearer(account("owner", "model owner"), "model owner")}
    change = lambda body: Client().patch("/api/v1/applications/digits/", body, "application/json", headers=owner)  # noqa: E731
    assert change({"slo_ms": 90}).status_code == 200
    assert change({"weight": 1.0}).status_code == 200, "as it is"
    refused = change({"weight": 5})
    assert refused.status_code == 403 and "weight: needs the role operator" in refused.json()["detail"]


# --- websockets ------------------------------------------------------------------------------------------------------


def test_every_websocket_and_message_has_an_entry():
    commands = typing.get_args(msgspec.structs.fields(BrowserCommand)[0].type)
    assert {"connect", *commands} == table.BROWSER_SOCKETS["ws/console/live/"].keys()
    paths = {str(route.pattern) for route in asgi.websocket.routes} - {""}
    members = {path for path in table.MEMBER_ADDRESSES if path.startswith("ws/")}
    assert paths == members | table.BROWSER_SOCKETS.keys()


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("message", [name for name in table.BROWSER_SOCKETS["ws/console/live/"] if name != "connect"])
async def test_browsers_messages_are_for_roles_as_the_table_says(caller, message):
    client = await database_sync_to_async(session)(caller)
    answers = {"ping": "pong", "snapshot": "snapshot"}
    async with Browser(client) as browser:
        if role_of(caller) < table.BROWSER_SOCKETS["ws/console/live/"]["connect"]:
            assert (await browser.close_code())[0] == 4401
        else:
            await browser.until("snapshot")
            await browser.say(f'{{"command": "{message}"}}')
            await browser.until(answers[message])


@pytest.mark.parametrize("kind", ["node", "gateway"])
async def test_no_role_opens_a_members_websocket(kind):
    for caller in ("viewer", "operator"):
        token = await database_sync_to_async(lambda who=caller: bearer(account(who, who), who))()
        scope = {"type": "websocket", "path": f"/ws/{kind}/", "query_string": b""}
        socket = ApplicationCommunicator(
            asgi.application, {**scope, "headers": [(b"authorization", token.encode())], "client": ("127.0.0.1", 1)}
        )
        await socket.send_input({"type": "websocket.connect"})
        output = {"type": ""}
        while output["type"] != "websocket.close":
            output = await socket.receive_output(60)
        assert output["code"] == 4401
        await socket.send_input({"type": "websocket.disconnect", "code": 4401})
        await socket.wait(60)
    count = await database_sync_to_async(lambda: Node.objects.count() + Gateway.objects.count())()
    assert count == 0


@pytest.mark.parametrize(
    "origin, host, accepted",
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("https://127.0.0.1", "127.0.0.1", True),
        ("http://127.0.0.1:9999", "127.0.0.1:8080", False),
        ("http://localhost:8080", "127.0.0.1:8080", False),
        ("http://evil.example:8080", "evil.example:8080", False),
        ("http://evil.example", "127.0.0.1:8080", False),
        ("null", "127.0.0.1:8080", False),
        ("http://[", "127.0.0.1:8080", False),
        ("", "127.0.0.1:8080", False),
    ],
)
async def test_a_live_page_is_opened_by_pages_of_this_console_alone(origin, host, accepted):
    client = await database_sync_to_async(session)("viewer")
    headers = [*cookie(client), (b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope = {"type": "websocket", "path": "/ws/console/live/", "query_string": b"", "headers": headers}
    socket = ApplicationCommunicator(asgi.application, scope)
    await socket.send_input({"type": "websocket.connect"})
    output = await socket.receive_output(60)
    assert output["type"] == ("websocket.accept" if accepted else "websocket.close")
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait(60)


def test_the_document_is_the_table():
    assert (ROOT / "docs/access.md").read_text() == text(), "run: python -m tools.access_doc"


def test_cookies_are_named_for_this_appliance():
    assert settings.SESSION_COOKIE_NAME.startswith("nereus_session_")
    assert settings.CSRF_COOKIE_NAME.startswith("nereus_csrf_")
