"""Webhooks to real servers: addresses that are reached, signatures, further tries, bounds, and REST."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import http.server
import json
import socketserver
import threading
from contextlib import suppress

import pytest
from django.conf import settings
from django.test import Client

from registry import clock
from registry.audit.entries import AuditEntry
from registry.webhooks import outgoing
from registry.webhooks.rows import MOST, Webhook
from registry.webhooks.targets import ForbiddenTarget, parsed, resolved
from scheduler import live, webhooks
from tests.accounts import account, bearer

pytestmark = pytest.mark.django_db(transaction=True)


class Receiver(http.server.BaseHTTPRequestHandler):
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
        # IPv4 inside IPv6: NAT64, 6to4, an old form without a prefix; and site-local addresses.
        *("[64:ff9b::10.1.2.3]", "[2002:7f00:1::1]", "[::10.1.2.3]", "[fec0::1]", "[64:ff9b:1::a01:203]"),
    ],
)
def test_addresses_that_are_not_public_are_not_reached(host):
    with pytest.raises(ForbiddenTarget, match=r"NEREUS_WEBHOOK_NETWORKS|no address"):
        resolved(f"https://{host}/")


def test_public_addresses_are_reached_over_https_alone():
    assert resolved("https://1.1.1.1/x?y=1").url == "https://1.1.1.1:443/x?y=1"
    assert resolved("https://[2606:4700::1111]:8443/").url == "https://[2606:4700::1111]:8443/"
    assert resolved("https://[64:ff9b::1.1.1.1]/").address == "64:ff9b::101:101"
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


def test_events_go_to_those_that_want_them(monkeypatch):
    one, queued = hook(), []
    Webhook.objects.create(name="off", url=one.url, events=["plan"], enabled=False)
    monkeypatch.setattr(webhooks, "_queue", lambda pk, text: queued.append((pk, json.loads(text)["data"])) or True)
    webhooks.announce("plan", lambda: {"version": 3})
    assert queued == [(one.pk, {"version": 3})]
    webhooks.announce("repair", lambda: pytest.fail("nobody wants it"))


def test_so_many_deliveries_wait_at_most_and_those_of_a_lost_worker_are_forgotten(clean_redis, monkeypatch):
    one, text = hook(), outgoing.body("plan", {})
    for _ in range(webhooks.MOST_WAITING):
        webhooks._keep(one.pk, outgoing.body("plan", {}))
    assert not webhooks._queue(one.pk, text)
    lost = next(iter(webhooks._waiting(one.pk)))
    kept = {"since": clock.wall() - webhooks.LOST_S - 1, "event": "plan", "tries": 0, "again": 0.0}
    live.client().hset(webhooks._key(one.pk), lost, json.dumps(kept))
    # Another box on the same Redis, whose steady clock is another one.
    monkeypatch.setattr(clock, "boot", lambda: "another")
    assert webhooks._queue(one.pk, text)
    assert not webhooks._queue(one.pk, outgoing.body("plan", {}))
    Webhook.objects.all().delete()
    webhooks._deliver(one.pk, text, 0)
    assert len(webhooks._waiting(one.pk)) == webhooks.MOST_WAITING - 1


def test_people_see_when_a_failed_delivery_is_tried_again(inside, receiver, clean_redis):
    receiver.status = 500
    one, text = hook(receiver.url), outgoing.body("plan", {"version": 7})
    assert webhooks._queue(one.pk, text) and webhooks.retries(one.pk) == []
    before = clock.wall()
    webhooks._deliver(one.pk, text, 0)
    after = clock.wall()
    ada = account("ada")
    headers = {"Authorization": bearer(ada)}
    (shown,) = Client().get("/api/v1/webhooks/", headers=headers).json()["results"]
    (retry,) = shown["retries"]
    assert (retry["event"], retry["tries"]) == ("plan", 1)
    (kept,) = webhooks.retries(one.pk)
    assert before <= kept.again.timestamp() - outgoing.PAUSES_S[0] <= after
    browser = Client()
    browser.force_login(ada)
    page = browser.get("/access/").content.decode()
    assert "plan: failed 1 of 5 times, again at" in page
    receiver.status = 204
    webhooks._deliver(one.pk, text, 1)
    assert webhooks.retries(one.pk) == []


class Drip(socketserver.BaseRequestHandler):
    """Answers one byte at a time, so that no read takes long."""

    def handle(self) -> None:
        with suppress(OSError):
            while not self.server.stopped.wait(0.02):
                self.request.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")


def test_a_receiver_that_answers_byte_by_byte_is_cut_off(inside, monkeypatch):
    monkeypatch.setattr(outgoing, "TIMEOUT_S", 0.3)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drip) as server:
        server.stopped = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        one = hook(f"http://127.0.0.1:{server.server_address[1]}/")
        assert outgoing.deliver(one.pk, outgoing.body("plan", {})).error == "no answer within 0.3 s"
        server.stopped.set()
        server.shutdown()


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
