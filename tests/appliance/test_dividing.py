"""An operator divides a box's cores anew in a real browser, and no query of a running load fails."""

from __future__ import annotations

import pytest

from tests.load import Load
from tests.running import eventually
from tools.chromium import expect

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


def test_cores_are_divided_anew_under_load_and_back(appliance, patient, page):
    at, before = page.get_by_test_id, devices(appliance)
    cores = sorted(core for one in before.values() for core in one["cores"])
    whole = ",".join(map(str, cores))
    page.goto("/nodes/")
    expect(at("division-box")).to_contain_text(f"{len(cores)} cores are divided as")
    with Load(appliance.http, appliance.credentials["api_key"], rate=10) as load:

        def goes_on() -> None:
            answered = load.report.ok
            eventually(lambda: load.report.ok > answered + 20)

        at("divide-box").click()
        at("division-spec").fill("99x1")
        at("division-submit").click()
        expect(at("error-cpu_devices")).to_contain_text("asks for 99 cores")
        at("division-spec").fill(whole)
        at("division-submit").click()
        expect(at("division-box")).to_contain_text("as ordered here")
        expect(at("dividing-box")).to_be_visible()
        eventually(lambda: serve(appliance, [cores]))
        (new,) = devices(appliance)
        assert new not in before
        expect(at(f"device-{new}")).to_have_attribute("data-state", "up")
        expect(at("dividing-box")).to_have_count(0)
        goes_on()
        # Back to the box's own settings, under the names of before.
        at("divide-box").click()
        at("division-spec").fill("")
        at("division-submit").click()
        eventually(lambda: serve(appliance, sorted(one["cores"] for one in before.values())))
        assert devices(appliance).keys() == before.keys()
        goes_on()
    assert load.report.ok == load.report.sent, load.report.errors[:3]
    with appliance.rest() as client:
        entries = client.get("/audit/?kind=node").raise_for_status().json()["results"]
    assert whole in str([one["after"] for one in entries])
