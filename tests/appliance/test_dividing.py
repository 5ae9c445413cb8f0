"""An operator divides a box's cores anew in a real browser.

No query of a running load fails.
"""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By

from tests.appliance.test_browser import browser, by_testid, click, fill, signed_in, wait  # noqa: F401 (fixtures)
from tests.load import Load

pytestmark = pytest.mark.wide


def devices(appliance) -> dict[str, dict]:
    with appliance.rest() as client:
        found = client.get("/devices/").raise_for_status().json()["results"]
    # Other tests add nodes.
    return {one["ref"]: one for one in found if one["ref"].startswith("box/")}


def serve(appliance, cores: list[list[int]]) -> bool:
    found = [one for one in devices(appliance).values() if one["kind"] == "cpu"]
    good = all(one["state"] == "up" and one["phase"] == "" for one in found)
    return good and sorted(one["cores"] for one in found) == cores


def test_cores_are_divided_anew_under_load_and_back(appliance, patient, signed_in):  # noqa: F811
    page = signed_in
    before = devices(appliance)
    cores = sorted(core for one in before.values() for core in one["cores"])
    page.get(appliance.console + "/nodes/")
    assert f"{len(cores)} cores are divided as" in by_testid(page, "division-box").text
    with Load(appliance.http, appliance.credentials["api_key"], rate=10) as load:
        click(page, "divide-box")
        fill(by_testid(page, "division-spec"), "99x1")
        wait(page, lambda: "asks for 99 cores" in by_testid(page, "division-consequences").text)
        fill(by_testid(page, "division-spec"), ",".join(map(str, cores)))
        wait(page, lambda: "1 device: cores" in by_testid(page, "division-consequences").text)
        assert "takes minutes" in by_testid(page, "division-consequences").text
        click(page, "division-submit")
        wait(page, lambda: "as ordered here" in by_testid(page, "division-box").text)
        wait(page, lambda: by_testid(page, "dividing-box").is_displayed())
        wait(page, lambda: serve(appliance, [cores]))
        (new,) = devices(appliance)
        assert new not in before
        wait(page, lambda: by_testid(page, f"device-{new}").get_attribute("data-state") == "up")
        wait(page, lambda: not page.find_elements(By.CSS_SELECTOR, '[data-testid="dividing-box"]'))
        answered = load.report.ok
        wait(page, lambda: load.report.ok > answered + 20)
        # Back to the box's own settings, under the names of before.
        click(page, "divide-box")
        fill(by_testid(page, "division-spec"), "")
        wait(page, lambda: "by its settings" in by_testid(page, "division-consequences").text)
        click(page, "division-submit")
        wait(page, lambda: serve(appliance, sorted(one["cores"] for one in before.values())))
        assert devices(appliance).keys() == before.keys()
        answered = load.report.ok
        wait(page, lambda: load.report.ok > answered + 20)
    assert load.report.ok == load.report.sent, load.report.errors[:3]
    with appliance.rest() as client:
        entries = client.get("/audit/?kind=node").raise_for_status().json()["results"]
    assert ",".join(map(str, cores)) in str([one["after"] for one in entries])
