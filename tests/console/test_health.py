"""Health in the list of applications: what needs a person, and the last hour. The one browser test of the gate."""

from __future__ import annotations

import pytest

from registry import clock, models
from scheduler import telemetry
from scheduler.history import recording
from tests.console.conftest import SIGNATURE, add_variant
from tools.chromium import expect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def queries(**late: int) -> None:
    """A second with a hundred queries of each application: ``late`` ones by application, others by the best variant."""
    counts = {
        name: {"arrived": 100, "in_time": 100 - n, "late": n, "normalized_sum": 100.0 * (100 - n)}
        for name, n in late.items()
    }
    second = {"t": int(clock.wall()) - 30, "gateway": "front", "serving": [], "applications": counts}
    telemetry.record(telemetry.GATEWAY_STREAM, second)
    recording.record()


def test_the_list_says_of_each_application_what_the_overview_says(page):
    for name in ("bare", "good", "idle", "late", "poor"):
        application = models.Application.objects.create(name=name, slo_ms=80, signature=SIGNATURE)
        if name != "bare":
            add_variant(application, name, 95.0)
    queries(good=0, late=3, poor=40)
    page.goto("/applications/")
    colors = set()
    for name, text, classes in (
        ("good", "100.0 % in time · accuracy 100.0 %", "small"),
        ("bare", "no queries", "small"),
        ("idle", "no queries", "small"),
        ("late", "97.0 % in time · accuracy 100.0 %", "small warn strong"),
        ("poor", "60.0 % in time · accuracy 100.0 %", "small bad strong"),
    ):
        cell = page.get_by_test_id(f"health-{name}")
        expect(cell).to_have_text(text)
        expect(cell).to_have_class(classes)
        colors.add(cell.evaluate("(cell) => getComputedStyle(cell).color"))
    assert len(colors) == 3
    needing = page.get_by_test_id("application-row-bare").locator(".health > div:has(a)")
    expect(needing).to_have_text("warning bare has no variant")
    # The list is read again after a change, and keeps the figures.
    page.get_by_test_id("health-good").evaluate("(cell) => { cell.dataset.old = 1; }")
    page.evaluate("import('/static/nereus/refresh.js').then(({ changed }) => changed('application'))")
    expect(page.locator("[data-testid=health-good]:not([data-old])")).to_be_visible()
    expect(page.get_by_test_id("health-poor")).to_have_text("60.0 % in time · accuracy 100.0 %")
    # One that is as before stays: a click on it is not lost.
    page.evaluate("document.getElementById('applications-list').same = true")
    page.evaluate("import('/static/nereus/refresh.js').then(({ refresh }) => refresh())")
    assert page.evaluate("document.getElementById('applications-list').same")
    link = page.get_by_test_id("application-row-bare").locator(".health a")
    target = link.get_attribute("href").partition("#")[2]
    link.click()
    expect(page.locator(f"#{target}")).to_be_attached()
    # The overview has the same marks over the same hour.
    page.goto("/?range=3600")
    expect(page.get_by_test_id("application-poor").locator("td.bad.strong").first).to_have_text("60.00")
    expect(page.get_by_test_id("application-late").locator("td.warn.strong")).to_have_text(["97.00"])
