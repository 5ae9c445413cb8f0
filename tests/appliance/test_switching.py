"""The stack is switched on a whole real appliance under load, and no query fails for it."""

from __future__ import annotations

import pytest

from tests.load import Load
from tests.running import eventually

pytestmark = pytest.mark.wide


@pytest.fixture
def another_stack(appliance):
    yield
    with appliance.rest() as client:
        assert client.patch("/control/", json={"stack": None}).status_code == 200


def test_every_stack_is_switched_to_under_load_and_no_query_fails(appliance, patient, another_stack):
    with appliance.rest() as client:
        control = client.get("/control/").json()
        names = [stack["name"] for stack in control["stacks"]]
        before = client.get("/plan/").json()["version"]

        def in_force(name: str) -> bool:
            plan = client.get("/plan/").json()
            adopted = {line["version"] for line in appliance.events("plan_adopted")}
            return plan["version"] > before and plan["version"] in adopted and plan["wire"]["stack"] == name

        with Load(appliance.http, appliance.credentials["api_key"], rate=20) as load:
            for name in [*names[1:], names[0]]:
                sent = load.report.ok
                assert client.patch("/control/", json={"stack": name}).status_code == 200
                eventually(lambda name=name: in_force(name), why=f"a plan by {name}")
                eventually(lambda sent=sent: load.report.ok > sent + 20, why=f"answers under {name}")
            report = load.stop()
    assert report.unanswered == 0
    assert set(report.statuses) == {200}, report.errors[:5]
    assert report.ok == report.sent
