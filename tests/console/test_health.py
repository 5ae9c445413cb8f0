"""Health of applications in their list.

A cell has what needs a person, and figures of the last hour as on the overview.
"""

from __future__ import annotations

import pytest

from registry import clock, models
from scheduler import telemetry
from scheduler.history import recording
from tests.console.browsing import browser
from tests.console.conftest import SIGNATURE, add_variant

__all__ = ["browser"]
pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def queries(**late: int) -> None:
    """Report one second with a hundred queries of each application.

    ``late`` of them are late, by application; the best variant answers the others.
    """
    counts = {
        name: {"arrived": 100, "in_time": 100 - n, "late": n, "normalized_sum": 100.0 * (100 - n)}
        for name, n in late.items()
    }
    second = {"t": int(clock.wall()) - 30, "gateway": "front", "serving": [], "applications": counts}
    telemetry.record(telemetry.GATEWAY_STREAM, second)
    recording.record()


def test_the_list_says_of_each_application_what_the_overview_says(browser):
    for name in ("bare", "good", "idle", "late", "poor"):
        application = models.Application.objects.create(name=name, slo_ms=80, signature=SIGNATURE)
        if name != "bare":
            add_variant(application, name, 95.0)
    queries(good=0, late=3, poor=40)
    browser.open("/applications/")
    browser.wait(lambda: "in time" in browser.one("health-good").text)
    shown = {name: browser.one(f"health-{name}") for name in ("bare", "good", "idle", "late", "poor")}
    assert {name: (cell.text, cell.get_attribute("class").split()) for name, cell in shown.items()} == {
        "bare": ("no queries", ["small"]),
        "good": ("100.0 % in time · accuracy 100.0 %", ["small"]),
        "idle": ("no queries", ["small"]),
        "late": ("97.0 % in time · accuracy 100.0 %", ["small", "warn", "strong"]),
        "poor": ("60.0 % in time · accuracy 100.0 %", ["small", "bad", "strong"]),
    }
    (needing,) = browser.all('[data-testid="application-row-bare"] .health > div:has(a)')
    assert needing.text == "warning bare has no variant"
    colors = {name: cell.value_of_css_property("color") for name, cell in shown.items()}
    assert len({colors["good"], colors["late"], colors["poor"]}) == 3
    # The list is read again after a change, and keeps the figures.
    browser.run("document.querySelector('[data-testid=health-good]').dataset.old = '1'")
    browser.run("import('/static/nereus/refresh.js').then(({ changed }) => changed('application'))")
    browser.wait(lambda: not browser.one("health-good").get_attribute("data-old"))
    assert browser.one("health-poor").text == "60.0 % in time · accuracy 100.0 %"
    # One that is as before stays: a click on it is not lost.
    browser.run(
        "document.getElementById('applications-list').same = true;"
        "import('/static/nereus/refresh.js').then(({ refresh }) => refresh()).then(() => { window.again = true; })"
    )
    browser.wait(lambda: browser.run("return window.again"))
    assert browser.run("return document.getElementById('applications-list').same")
    link = browser.one("application-row-bare").find_element("css selector", ".health a")
    target = link.get_attribute("href").partition("#")[2]
    link.click()
    browser.wait(lambda: browser.all(f"#{target}"))
    # The overview has the same marks over the same hour.
    browser.open("/?range=3600")
    row = browser.wait(lambda: browser.one("application-poor"))
    assert row.find_elements("css selector", "td.bad.strong")[0].text == "60.00"
    late = browser.one("application-late").find_elements("css selector", "td.warn.strong")
    assert [cell.text for cell in late] == ["97.00"]
    assert browser.faults() == []
