"""Variants side by side, in a real browser with rows of a real database."""

from __future__ import annotations

import pytest

from registry import clock, models
from scheduler.history import recording
from tests.console.browsing import browser
from tests.console.conftest import add_plan, add_variant
from tests.history.test_recording import report

__all__ = ["browser"]
pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def table(browser) -> dict[str, list[str]]:
    rows = browser.run(
        "return [...document.querySelectorAll('[data-row]')]"
        ".map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    return {title: cells for title, *cells in rows}


def test_variants_stand_side_by_side_with_what_each_answered(browser, cluster):
    add_plan(cluster["best"])
    add_variant(cluster["application"], "third", 80.0, state="profiling", p95=())
    # Within one point of the page's grid, wherever the clock stands: a point that is cut off counts for less.
    begin = clock.wall() // 60 * 60 - 120
    for offset, variant in enumerate(("quick", "quick", "quick", "best"), 1):
        report(name="digits", variant=variant, at=begin + offset)
    recording.record()
    browser.open("/applications/digits/")
    browser.click("compare-link")
    found = browser.wait(lambda: table(browser))
    assert [len(cells) for cells in found.values()] == [3] * len(found)
    browser.click("compare-third")
    found = browser.wait(lambda: (rows := table(browser)) and len(rows["State"]) == 2 and rows)
    assert found["Accuracy"] == ["98.00 %, declared", "90.00 %, declared"]
    assert found["Of the best variant"] == ["100.00 %", "91.84 %"]
    assert found["cpu-a: memory"] == ["4.0 KiB", "4.0 KiB"]
    assert found["cpu-a: p50 to p95, one row"] == ["8.00 ms to 10 ms", "8.00 ms to 10 ms"]
    assert found["cpu-a: capacity of one device"] == ["133 items/s in batches of 4"] * 2
    assert found["Share of the answers"] == ["25.0 %", "75.0 %"]
    assert found["Can run now on"] == ["no device", "box/cpu0"]
    assert found["Held or wanted by the plan on"][0] == "box/cpu0"
    bold = browser.all('[data-row="Share of the answers"] strong')
    assert [cell.text for cell in bold] == ["75.0 %"]
    assert browser.one("compare-latency-cpu-a").get_attribute("data-curves") == "2"
    assert int(browser.one("compare-share").get_attribute("data-points")) >= 1
    assert browser.driver.current_url.endswith("?variants=best,quick&range=3600")
    browser.click("compare-quick")
    browser.wait(lambda: "two variants or more" in browser.one("compare-note").text)
    assert not browser.one("compare-table").is_displayed()
    # The address holds the choice.
    browser.open("/applications/digits/compare/?variants=quick,third&range=86400")
    found = browser.wait(lambda: table(browser))
    assert found["cpu-a: capacity of one device"] == ["133 items/s in batches of 4", "no profile"]
    assert browser.faults() == []


def test_one_variant_cannot_be_compared(staff):
    application = models.Application.objects.create(name="lone", slo_ms=80, signature={"inputs": [], "outputs": []})
    add_variant(application, "only", 98.0)
    page = staff.get("/applications/lone/compare/").content.decode()
    assert 'data-testid="compare-empty"' in page and "one variant" in page
    assert 'data-testid="compare-link"' not in staff.get("/applications/lone/").content.decode()
