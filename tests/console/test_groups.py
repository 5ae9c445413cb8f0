"""Groups of applications, a field that model owners set: the strip folds, searches and filters by it."""

from __future__ import annotations

import pytest

from registry import events, models
from scheduler.history import recording
from tests.accounts import signed_in
from tests.history.test_recording import report
from tools.chromium import expect

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
    client = signed_in("model owner")
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


def test_the_strip_folds_searches_and_filters_by_group(page):
    applications(faces="vision", gates="vision", words="text", lone="")
    page.goto("/applications/")
    shown, search = page.locator(".strip li > a").filter(visible=True), page.get_by_test_id("strip-search")
    expect(page.get_by_test_id("strip-group-vision")).to_have_text("vision: 2 quiet applications", use_inner_text=True)
    expect(page.get_by_test_id("strip-group-text")).to_have_text("text: 1 quiet application", use_inner_text=True)
    expect(page.get_by_test_id("strip-count")).to_have_text("1 quiet application")
    expect(shown).to_have_count(0)
    page.get_by_test_id("strip-group-vision").locator("summary").click()
    expect(shown).to_have_text(["faces", "gates"])
    search.fill("TEXT")
    expect(shown).to_have_text(["words"])
    search.fill("lon")
    expect(shown).to_have_text(["lone"])
    search.fill("")
    page.locator("#strip-group").select_option("vision")
    expect(shown).to_have_text(["faces", "gates"])
    # The choice holds on the next page.
    page.goto("/nodes/")
    expect(shown).to_have_text(["faces", "gates"])
