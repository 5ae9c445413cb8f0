"""Groups of applications: a field that model owners set.

The strip folds, searches and filters by it.
"""

from __future__ import annotations

import pytest
from django.test import Client

from registry import events, models
from scheduler.history import recording
from tests.accounts import account
from tests.console.browsing import browser
from tests.history.test_recording import report

__all__ = ["browser"]
pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def applications(**groups: str) -> None:
    for name, group in groups.items():
        models.Application.objects.create(
            name=name, group=group, slo_ms=80, signature={"inputs": [], "outputs": []}, description="x"
        )
        report(30, name=name)
    recording.record()


def test_owners_group_applications_without_a_new_plan():
    applications(faces="")
    client = Client()
    client.force_login(account("owner", "model owner"))
    received = []

    def listen(sender, kind, ref, replan, **_):
        received.append((kind, ref, replan))

    events.registry_changed.connect(listen)
    try:
        answer = client.patch("/api/v1/applications/faces/", {"group": "vision"}, content_type="application/json")
    finally:
        events.registry_changed.disconnect(listen)
    assert (answer.status_code, answer.json()["group"]) == (200, "vision")
    assert received == [("application", "faces", False)]
    (row,) = client.get("/api/v1/history/applications/?seconds=3600").json()["applications"]
    assert (row["name"], row["group"]) == ("faces", "vision")
    long = client.patch("/api/v1/applications/faces/", {"group": "x" * 64}, content_type="application/json")
    assert long.status_code == 400 and long.json()["errors"][0]["field"] == "group"


def test_the_strip_folds_searches_and_filters_by_group(browser):
    applications(faces="vision", gates="vision", words="text", lone="")
    browser.open("/applications/")

    def shown() -> list[str]:
        return [one.text for one in browser.all(".strip li > a") if one.is_displayed()]

    browser.wait(lambda: browser.one("strip-group-vision").text == "vision: 2 quiet applications")
    assert browser.one("strip-group-text").text == "text: 1 quiet application"
    assert browser.one("strip-count").text == "1 quiet application" and shown() == []
    browser.all('[data-testid="strip-group-vision"] summary')[0].click()
    browser.wait(lambda: shown() == ["faces", "gates"])
    browser.one("strip-search").send_keys("TEXT")
    browser.wait(lambda: shown() == ["words"])
    browser.one("strip-search").clear()
    browser.one("strip-search").send_keys("lon")
    browser.wait(lambda: shown() == ["lone"])
    browser.run("const f = document.getElementById('strip-search'); f.value = ''; f.dispatchEvent(new Event('input'))")
    chosen = (
        "const f = document.getElementById('strip-group'); f.value = 'vision'; f.dispatchEvent(new Event('change'))"
    )
    browser.run(chosen)
    browser.wait(lambda: shown() == ["faces", "gates"])
    # The choice holds on the next page.
    browser.open("/nodes/")
    browser.wait(lambda: shown() == ["faces", "gates"])
    assert browser.faults() == []
