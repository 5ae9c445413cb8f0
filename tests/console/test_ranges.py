"""An application's charts over a range of time, in a real browser."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from registry import clock
from scheduler.history import marking, recording
from scheduler.history.models import Mark
from tests.console.browsing import browser
from tests.history.test_recording import report

__all__ = ["browser"]
pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def query(browser) -> dict[str, int]:
    return browser.run(
        "return Object.fromEntries([...new URLSearchParams(location.search)].map(([k, v]) => [k, Number(v)]))"
    )


def points(browser) -> int:
    return int(browser.one("chart-variants").get_attribute("data-points"))


def test_dragging_over_a_chart_zooms_all_of_them_and_the_address_holds_the_range(browser, cluster):
    end = int(clock.wall()) // 60 * 60
    for back in range(60, 660, 60):
        report(name="digits", variant="quick", at=end - back)
    recording.record()
    marking.mark(Mark.Kind.NOTE, "a fan was replaced", by="operator")
    browser.open("/applications/digits/?range=3600")
    browser.wait(lambda: points(browser) > 0)
    # Marks come by a request of their own.
    browser.wait(lambda: "a fan was replaced" in browser.one("marks").text)
    canvas = browser.all('[data-testid="chart-variants"] canvas')[0]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    width = canvas.size["width"]
    drag = ActionChains(browser.driver).move_to_element_with_offset(canvas, int(width * 0.1), 0).click_and_hold()
    drag.move_to_element_with_offset(canvas, int(width * 0.4), 0).release().perform()
    zoomed = browser.wait(lambda: (found := query(browser)).keys() == {"begin", "end"} and found)
    # The right half of the hour holds all answers, and less of it is shown than before.
    assert end - 3600 < zoomed["begin"] < zoomed["end"] <= end + 120
    assert zoomed["end"] - zoomed["begin"] < 1800
    browser.wait(lambda: points(browser) > 0 and "quick 100" in browser.one("variant-shares").text)
    assert browser.one("range-shown").text
    # Back leads to the range before, and keys move it as well.
    browser.driver.back()
    browser.wait(lambda: query(browser) == {"range": 3600})
    browser.all('#app-moves [aria-label="Zoom out"]')[0].click()
    browser.wait(lambda: query(browser) == {"range": 7200})
    assert browser.faults() == []


def test_a_bar_of_the_strip_leads_to_the_applications_minute(browser, cluster):
    at = int(clock.wall()) // 60 * 60 - 120
    report(name="digits", variant="quick", at=at)
    recording.record()
    browser.open("/plans/")
    browser.wait(lambda: browser.one("strip").is_displayed())
    if not browser.all("#strip-loud canvas"):
        browser.one("strip-count").click()
    bars = browser.wait(lambda: next(one for one in browser.all("#strip canvas") if one.is_displayed()))
    bars.click()
    browser.wait(lambda: "/applications/digits/?begin=" in browser.driver.current_url)
    found = query(browser)
    assert found["end"] - found["begin"] == 300
    assert browser.faults() == []
