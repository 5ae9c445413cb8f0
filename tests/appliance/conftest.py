"""One real appliance a process of tests, with one application whose variants are ready."""

from __future__ import annotations

import pytest

from tests.running import serving
from tools.chromium import InThread, expect, sign_in, tab


@pytest.fixture(scope="package")
def appliance(tmp_path_factory, tiny_models):
    """An appliance that serves ``tiny`` on two one-core CPU devices where there are two cores."""
    periods = {"NEREUS_PLAN_PERIOD_S": "5", "NEREUS_PROMISE_PERIOD_S": "30"}
    with serving(tmp_path_factory.mktemp("appliance") / "home", tiny_models, **periods) as running:
        yield running


@pytest.fixture
def patient(appliance):
    """An SLO that a busy machine keeps, also where queries are given up after ten times it; taken back in the end."""
    with appliance.rest() as client:
        slo_ms = client.get("/applications/tiny/").json()["slo_ms"]
        assert client.patch("/applications/tiny/", json={"slo_ms": 10 * slo_ms}).status_code == 200
        yield
        assert client.patch("/applications/tiny/", json={"slo_ms": slo_ms}).status_code == 200


@pytest.fixture(scope="module")
def session(appliance, chromium) -> dict:
    with tab(chromium, base_url=appliance.console) as page:
        sign_in(page, appliance.credentials["console_user"], appliance.credentials["console_password"])
        expect(page.get_by_test_id("kpi-demand")).to_be_visible()
        return page.context.storage_state()


@pytest.fixture
def faults() -> list[str]:
    """Errors of scripts and of the policy."""
    return []


@pytest.fixture
def page(appliance, chromium, session, faults):
    with tab(chromium, base_url=appliance.console, storage_state=session) as page:
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        yield page


def live(page: InThread, path: str = "/") -> None:
    page.goto(path)
    expect(page.get_by_test_id("live-state")).to_have_text("live", ignore_case=True)
