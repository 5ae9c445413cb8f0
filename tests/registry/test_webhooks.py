"""Webhooks: addresses that are reached, signatures, further tries, bounds, and REST. Receivers are real servers."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import http.server
import json
import threading

import pytest
from django.conf import settings
from django.test import Client

from registry.audit.entries import AuditEntry
from registry.webhooks import outgoing
from registry.webhooks.rows import MOST, Webhook
from registry.webhooks.targets import ForbiddenTarget, parsed, resolved
from scheduler import live, webhooks
from tests.accounts import account, bearer

pytestmark = pytest.mark.django_db(transaction=True)


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what it gets; answers ``status``."""

    status = 204
    got: list[tuple[dict, bytes]]

    def do_POST(self) -> None:
        self.got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def receiver():
    handler = type("Handler", (Receiver,), {"got": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.url = f"http://localhost:{server.server_port}/hook?a=1"
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def inside(monkeypatch):
    """A setting that permits this box's own addresses."""
    permitted = dataclasses.replace(settings.NEREUS, webhook_networks=("127.0.0.0/8", "::1"))
    monkeypatch.setattr(settings, "NEREUS", permitted)


def hook(url: str = "https://example.com/", **more) -> Webhook:
    return Webhook.objects.create(name="pager", url=url, events=["plan"], **more)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "example.com",
        "https://",
        "https://user:pass@example.com/",
        "https://example.com/#part",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com/a\r\nHost: b",
    ],
)
def test_an_address_that_is_none_is_refused_when_it_is_made(url):
    with pytest.raises(ForbiddenTarget):
        parsed(url)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "10.1.2.3", "169.254.169.254", "0.0.0.0"),
        *("224.0.0.1", "[fe80::1]", "[fd00::1]", "192.168.1.1", "100.64.0.1", "2130706433", "0x7f.1"),
    ],
)
def test_addresses_that_are_not_public_are_not_reached(host):
    with pytest.raises(ForbiddenTarget, match=r"NEREUS_WEBHOOK_NETWORKS|no address"):
        resolved(f"https://{host}/")


def test_public_addresses_are_reached_over_https_alone():
    assert resolved("https://1.1.1.1/x?y=1").url == "https://1.1.1.1:443/x?y=1"
    assert resolved("https://[2606:4700::1111]:8443/").url == "https://[2606:4700::1111]:8443/"
    with pytest.raises(ForbiddenTarget, match="must be https"):
        resolved("http://1.1.1.1/")


def test_a_delivery_is_signed_and_goes_to_the_address_that_was_checked(inside, receiver):
    one = hook(receiver.url)
    text = outgoing.body("plan", {"version": 7})
    delivered = outgoing.deliver(one.pk, text)
    assert (delivered.status, delivered.error, delivered.again_s) == (204, "", None)
    ((headers, body),) = receiver.got
    assert json.loads(body)["data"] == {"version": 7} and headers["Host"].startswith("localhost:")
    at, digest = (part.partition("=")[2] for part in headers["Nereus-Signature"].split(","))
    assert digest == hmac.new(one.secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    one.refresh_from_db()
    assert (one.status, one.error, one.failures) == (204, "", 0) and one.tried


def test_without_the_setting_nothing_inside_is_reached(receiver):
    delivered = outgoing.deliver(hook(receiver.url).pk, outgoing.body("plan", {}))
    assert delivered.status is None and "NEREUS_WEBHOOK_NETWORKS" in delivered.error and receiver.got == []


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_refusal_is_tried_again_with_growing_pauses_until_it_is_given_up(inside, receiver, status):
    receiver.status = status
    one = hook(receiver.url)
    pauses = [outgoing.deliver(one.pk, "{}", attempt).again_s for attempt in range(5)]
    assert pauses == [*outgoing.PAUSES_S, None]
    # Redirects are not followed.
    assert len(receiver.got) == 5
    one.refresh_from_db()
    assert one.failures == 5 and str(status) in one.error


def test_an_address_that_has_failed_for_long_gets_each_event_once(inside, receiver):
    receiver.status = 500
    assert outgoing.deliver(hook(receiver.url, failures=outgoing.TIRED).pk, "{}").again_s is None


def test_events_go_to_those_that_want_them_and_so_many_wait_at_most(clean_redis):
    one = hook()
    Webhook.objects.create(name="off", url=one.url, events=["plan"], enabled=False)
    queued = []

    def send(pk: int, text: str) -> bool:
        queued.append((pk, json.loads(text)["data"]))
        return True

    assert outgoing.announce("plan", lambda: {"version": 3}, send) == 1
    assert queued == [(one.pk, {"version": 3})]
    assert outgoing.announce("repair", lambda: pytest.fail("nobody wants it"), send) == 0
    live.client().set(webhooks._key(one.pk), webhooks.MOST_WAITING)
    assert not webhooks._queue(one.pk, "{}")
    assert int(live.client().get(webhooks._key(one.pk))) == webhooks.MOST_WAITING


def test_rest_shows_the_secret_once_and_tests_a_webhook(inside, receiver, clean_redis):
    client = Client()
    headers = {"Authorization": bearer(account("ada"))}
    made = {"name": "pager", "url": receiver.url, "events": ["repair", "plan"]}
    post = {"content_type": "application/json", "headers": headers}
    answer = client.post("/api/v1/webhooks/", made, **post)
    assert answer.status_code == 201 and answer["Cache-Control"] == "no-store"
    secret = answer.json()["secret"]
    assert secret == Webhook.objects.get().secret
    assert secret not in client.get("/api/v1/webhooks/", headers=headers).content.decode()
    tested = client.post("/api/v1/webhooks/pager/test/", headers=headers).json()
    assert (tested["status"], tested["error"]) == (204, "")
    assert json.loads(receiver.got[0][1])["event"] == "test"
    changed = client.patch("/api/v1/webhooks/pager/", {"enabled": False}, **post)
    assert changed.json()["enabled"] is False
    entry = AuditEntry.objects.filter(kind="webhook", action="changed").first()
    assert (entry.actor, entry.before, entry.after) == ("ada", {"enabled": True}, {"enabled": False})
    assert client.post("/api/v1/webhooks/", made, **post).status_code == 409
    wrong = client.post("/api/v1/webhooks/", {"name": "x", "url": "ftp://a", "events": ["nothing"]}, **post).json()
    assert {error["field"].split(".")[0].split("[")[0] for error in wrong["errors"]} == {"url", "events"}
    assert client.delete("/api/v1/webhooks/pager/", headers=headers).status_code == 204
    for number in range(MOST):
        Webhook.objects.create(name=f"w{number}", url="https://example.com/", events=["plan"])
    assert client.post("/api/v1/webhooks/", made, **post).status_code == 409


def test_only_operators_have_to_do_with_webhooks():
    client = Client()
    headers = {"Authorization": bearer(account("owner", "model owner"), "model owner")}
    assert client.get("/api/v1/webhooks/", headers=headers).status_code == 403
