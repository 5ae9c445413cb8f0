"""Variants side by side, in a real browser with rows of a real database."""

from __future__ import annotations

import re

import pytest

from registry import clock, models
from scheduler.history import recording
from tests.console.conftest import add_plan, add_variant
from tests.history.test_recording import report
from tools.chromium import InThread, expect

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def table(page: InThread) -> dict[str, list[str]]:
    rows = [row.locator("xpath=*").all_text_contents() for row in page.locator("[data-row]").all()]
    return {title: cells for title, *cells in rows}


def test_variants_stand_side_by_side_with_what_each_answered(page, cluster):
    add_plan(cluster["best"])
    add_variant(cluster["application"], "third", 80.0, state="profiling", p95=())
    # Within one point of the page's grid, wherever the clock stands: a point that is cut off counts for less.
    begin = clock.wall() // 60 * 60 - 120
    for offset, variant in enumerate(("quick", "quick", "quick", "best"), 1):
        report(name="digits", variant=variant, at=begin + offset)
    recording.record()
    page.goto("/applications/digits/")
    page.get_by_test_id("compare-link").click()
    states = page.locator('[data-row="State"] > *')
    expect(states).to_have_count(4)
    assert {len(cells) for cells in table(page).values()} == {3}
    page.get_by_test_id("compare-third").click()
    expect(states).to_have_count(3)
    cells = table(page)
    assert cells["Accuracy"] == ["98.00 %, declared", "90.00 %, declared"]
    assert cells["Of the best variant"] == ["100.00 %", "91.84 %"]
    assert cells["cpu-a: memory"] == ["4.0 KiB", "4.0 KiB"]
    assert cells["cpu-a: p50 to p95, one row"] == ["8.00 ms to 10 ms", "8.00 ms to 10 ms"]
    assert cells["cpu-a: capacity of one device"] == ["133 items/s in batches of 4"] * 2
    assert cells["Share of the answers"] == ["25.0 %", "75.0 %"]
    assert cells["Can run now on"] == ["no device", "box/cpu0"]
    assert cells["Held or wanted by the plan on"][0] == "box/cpu0"
    expect(page.locator('[data-row="Share of the answers"] strong')).to_have_text(["75.0 %"])
    expect(page.get_by_test_id("compare-latency-cpu-a")).to_have_attribute("data-curves", "2")
    expect(page.get_by_test_id("compare-share")).to_have_attribute("data-points", re.compile("[1-9]"))
    assert page.url.endswith("?variants=best,quick&range=3600")
    page.get_by_test_id("compare-quick").click()
    expect(page.get_by_test_id("compare-note")).to_contain_text("two variants or more")
    expect(page.get_by_test_id("compare-table")).to_be_hidden()
    # The address holds the choice.
    page.goto("/applications/digits/compare/?variants=quick,third&range=86400")
    capacity = page.locator('[data-row="cpu-a: capacity of one device"] > td')
    expect(capacity).to_have_text(["133 items/s in batches of 4", "no profile"])


def test_one_variant_cannot_be_compared(staff):
    application = models.Application.objects.create(name="lone", slo_ms=80, signature={"inputs": [], "outputs": []})
    add_variant(application, "only", 98.0)
    page = staff.get("/applications/lone/compare/").content.decode()
    assert 'data-testid="compare-empty"' in page and "one variant" in page
    assert 'data-testid="compare-link"' not in staff.get("/applications/lone/").content.decode()
