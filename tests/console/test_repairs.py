"""The page of repairs, and their number in the navigation, REST with roles, metrics and the websocket's event."""

from __future__ import annotations

import html
import re

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from console import consumers
from registry import clock, models
from registry.models import AuditEntry
from scheduler import troubles
from scheduler.repairs import known, listing
from tests.accounts import account, bearer, signed_in
from tests.console.test_live import Browser
from workers import confinement

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]

KEY = "waiting:node:shed"


@pytest.fixture
def fresh(monkeypatch):
    complete = confinement.Isolation(landlock=7, seccomp=True)
    monkeypatch.setattr(confinement, "isolation", lambda: complete)
    monkeypatch.setattr(known, "_here", clock.Unchanged())
    monkeypatch.setattr(listing, "_shared", None)
    troubles._troubles.clear()
    yield
    troubles._troubles.clear()


@pytest.fixture
def shed():
    return models.Node.objects.create(name="shed", state="pending", channel="c2")


def page(client: Client) -> str:
    answer = client.get("/repairs/")
    assert answer.status_code == 200
    return answer.content.decode()


def count(text: str) -> tuple[int, bool]:
    tag, number = re.search(r'<span [^>]*(data-testid="repairs-count"[^>]*)>(\d+)<', text).groups()
    return int(number), "hidden" not in tag


def test_an_empty_list_says_that_nothing_needs_you(staff):
    text = page(staff)
    assert "Nothing needs you" in text and count(text) == (0, False)
    assert 'data-testid="need-' not in staff.get("/").content.decode()


def test_a_repair_says_since_when_what_it_costs_and_has_its_button(staff, shed):
    text = page(staff)
    assert "Node shed waits for approval" in text and "Nothing needs you" not in text
    assert f'<time datetime="{shed.created:%Y-%m-%dT%H:%M:%S}' in text
    assert "None of its devices serves until then." in text
    button = re.search(rf'<button[^>]*data-testid="act-{KEY}"[^>]*>', text)[0]
    assert 'data-call="/api/v1/nodes/shed/approve/"' in button and 'data-method="POST"' in button
    assert count(text) == (1, True)
    assert count(staff.get("/plans/").content.decode()) == (1, True), "on every page"
    assert f'data-testid="need-{KEY}"' in staff.get("/").content.decode()
    # One heading a repair, which names its part of the page.
    anchor = re.search(r'<article[^>]*aria-labelledby="([^"]+)"', text)[1]
    assert f'<h2 id="{anchor}">' in text and "<h1>Repairs</h1>" in text
    assert re.search(r'role="status"[^>]*id="repairs-told"', text)


def test_viewers_see_repairs_without_buttons_and_nothing_of_keys(shed):
    from datetime import timedelta

    from django.utils import timezone

    soon = timezone.now() + timedelta(days=1)
    models.ApiKey.objects.create(name="line", prefix="x" * 8, key_hash="1" * 64, expires=soon)
    text = page(signed_in("viewer"))
    assert "waits for approval" in text and "<article" in text and "data-call" not in text
    main = re.split("<main[^>]*>", html.unescape(re.sub(r"<(link|script|header)[^>]*>", "", text)))[1]
    assert "line" not in main
    assert count(text) == (1, True)
    assert count(page(signed_in("operator"))) == (2, True)


def test_nodes_with_one_cause_share_a_card(staff, shed, application):
    more = [models.Node.objects.create(name=name, state="pending", channel=name) for name in ("barn", "hut")]
    text = page(staff)
    (card,) = [part for part in text.split("<article")[1:] if "waits for approval" in part]
    card, _, _ = card.partition("</article>")
    assert "waits for approval, and 2 more like it" in card
    assert card.count("Approve it if you know it") == 1, "the remedy once"
    for node in (shed, *more):
        key = f"waiting:node:{node.name}"
        (line,) = [part for part in card.split("<li ")[1:] if f'data-testid="repair-{key}"' in part]
        assert f"Node {node.name} waits for approval." in line and "since <time" in line
        assert f'data-call="/api/v1/nodes/{node.name}/approve/"' in line and f'data-testid="ignore-{key}"' in line
    anchors = re.findall(r'<li id="(repair-\w+)"', card)
    overview = staff.get("/").content.decode()
    assert len(set(anchors)) == 3 and any(f"#{anchor}" in overview for anchor in anchors)
    assert count(text)[0] == len(re.findall(r'data-testid="repair-', text)), "each is counted and has its place"
    # One that is ignored leaves the card.
    for node in more:
        known.ignore(next(each for each in listing.current() if each.key == f"waiting:node:{node.name}"), "me")
    text = page(staff)
    assert "more like it" not in text and text.count("waits for approval</h2>") == 3


def test_rest_lists_ignores_and_shows_again_with_audit(staff, shed):
    operator = {"authorization": bearer(account("boss"))}
    viewer = {"authorization": bearer(account("guest", "viewer"), "viewer")}
    client, address = Client(), f"/api/v1/repairs/{KEY}/ignore/"
    (found,) = client.get("/api/v1/repairs/", headers=viewer).json()["results"]
    assert found["key"] == KEY and found["severity"] == "warning" and found["ignored_by"] == ""
    assert found["action"]["permitted"] is False and found["action"]["url"] == "/api/v1/nodes/shed/approve/"
    (found,) = client.get("/api/v1/repairs/", headers=operator).json()["results"]
    assert found["action"]["permitted"] is True
    assert client.post(address, headers=viewer).status_code == 403
    assert client.post("/api/v1/repairs/nothing/ignore/", headers=operator).status_code == 404
    assert client.post(address, headers=operator).status_code == 204
    (found,) = client.get("/api/v1/repairs/", headers=operator).json()["results"]
    assert found["ignored_by"] == "boss"
    text = page(staff)
    assert "Nothing needs you" in text and "Ignored by boss" in text and count(text) == (0, False)
    assert f'data-testid="need-{KEY}"' not in staff.get("/").content.decode()
    assert client.delete(address, headers=operator).status_code == 204
    assert count(page(staff)) == (1, True)
    entries = [(entry.actor, entry.action, entry.ref) for entry in AuditEntry.objects.filter(kind="repair")]
    assert entries == [("boss", "shown again", KEY), ("boss", "ignored", KEY)]
    troubles.occurred(ConnectionError("away"))
    refused = client.post("/api/v1/repairs/trouble:redis/ignore/", headers=operator)
    assert refused.status_code == 409 and "cannot be ignored" in refused.json()["detail"]


def test_the_button_of_a_device_that_is_gone(staff, cluster):
    models.Device.objects.filter(ref="box/cpu1").update(detail=models.Device.GONE)
    operator = {"authorization": bearer(account("boss"))}
    assert Client().delete("/api/v1/devices/box/cpu0/", headers=operator).status_code == 409
    assert Client().delete("/api/v1/devices/box/cpu1/", headers=operator).status_code == 204
    assert not models.Device.objects.filter(ref="box/cpu1").exists()
    assert AuditEntry.objects.filter(action="deleted", kind="device", ref="box/cpu1", actor="boss").exists()


def test_metrics_count_repairs_by_severity(shed):
    text = Client().get("/metrics").content.decode()
    assert 'nereus_repairs{severity="warning"} 1.0' in text and 'nereus_repairs{severity="error"} 0.0' in text
    known.ignore(listing.current()[0], "me")
    listing.forget()
    assert 'nereus_repairs{severity="warning"} 0.0' in Client().get("/metrics").content.decode()


def test_a_trouble_shows_on_every_page(staff):
    troubles.occurred(ConnectionError("nobody there"))
    text = staff.get("/").content.decode()
    assert "Redis fails" in text and count(text) == (1, True)
    assert "nobody there" in page(staff)


async def test_browsers_are_notified_when_the_list_changes(staff, shed, monkeypatch):
    monkeypatch.setattr(consumers, "REPAIRS_EVERY_S", 0.05)
    monkeypatch.setattr(listing, "SHARED_S", 0.0)
    async with Browser(staff) as browser:
        first = (await browser.until("snapshot"))["repairs"]
        assert (first["count"], first["warning"], first["error"]) == (1, 1, 0)
        await sync_to_async(shed.delete)()
        second = await browser.until("repairs")
        assert second["count"] == 0 and second["version"] != first["version"]


async def test_a_viewer_is_notified_of_what_viewers_see(shed, monkeypatch):
    viewer = await sync_to_async(signed_in)("viewer")
    async with Browser(viewer) as browser:
        assert (await browser.until("snapshot"))["repairs"]["count"] == 1


def test_the_overview_begins_with_what_needs_a_person_at_most_seven(staff, application):
    for index in range(9):
        models.Node.objects.create(name=f"shed{index}", state="pending", channel=f"c{index}")
    page = staff.get("/").content.decode()
    assert page.count('data-testid="need-waiting:node:') <= 7
    assert page.count('class="need') == 7 and "All " in page
    assert page.index('data-testid="needs"') < page.index('data-testid="kpi-demand"')
    assert 'data-testid="need-act-waiting:node:shed' in page and "since <time" in page


def test_one_cause_that_troubles_all_applications_leaves_room_for_others(staff):
    for index in range(12):
        models.Application.objects.create(name=f"bare{index:02}", slo_ms=80, signature={"inputs": [], "outputs": []})
    models.Node.objects.create(name="shed", state="pending", channel="c")
    page = staff.get("/").content.decode()
    assert page.count('data-testid="need-application:') == 1
    assert "And 11 more like it" in page and 'data-testid="need-waiting:node:shed"' in page
