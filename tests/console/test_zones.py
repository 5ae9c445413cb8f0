"""Times of the admin site, in the browser's zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from registry.models import Application
from tests.console.browsing import browser

pytestmark = pytest.mark.wide

__all__ = ["browser"]


PATH = "/admin/registry/application/"
#: 18:15 UTC; midnight in Nepal, where clocks are 5:45 ahead
MOMENT = datetime(2026, 3, 4, 18, 15, tzinfo=UTC)
NEPAL, UTC_TEXT = "March 5, 2026, midnight", "March 4, 2026, 6:15 p.m."


@pytest.fixture
def dated(application):
    Application.objects.update(created=MOMENT)


@pytest.mark.django_db(transaction=True)
def test_the_admin_site_shows_times_in_the_browsers_zone(browser, dated):
    driver = browser.driver
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kathmandu"})
    try:
        browser.open(PATH)
        # The page asked for first is loaded again, now that the server knows the zone.
        browser.wait(lambda: NEPAL in browser.all("#result_list")[0].text)
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Etc/UTC"})
        browser.open("/")
        browser.open(PATH)
        assert UTC_TEXT in browser.all("#result_list")[0].text, "the console's pages tell the zone, too"
        assert browser.faults() == []
    finally:
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


@pytest.mark.parametrize(
    "zone", ["Nowhere/Atlantis", "../../etc/passwd", "America", "A" * 5000, "\x00", "Etc/UTC\r\nx"]
)
def test_a_zone_that_is_none_is_utc(staff, dated, zone):
    staff.cookies["nereus_zone"] = zone
    answer = staff.get(PATH)
    assert answer.status_code == 200 and UTC_TEXT in answer.content.decode()
