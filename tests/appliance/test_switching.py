"""Strategy, routing and batch policy are switched on a whole real appliance under load, and no query fails for it."""

from __future__ import annotations

import pytest

from tests.load import Load
from tests.running import eventually


@pytest.fixture
def as_before(appliance):
    """Takes every choice back in the end."""
    yield
    with appliance.rest() as client:
        assert client.patch("/control/", json={"strategy": None, "routing": None}).status_code == 200
        assert client.patch("/applications/tiny/", json={"batch_policy": "nereus"}).status_code == 200


def test_everything_is_switched_under_load_and_no_query_fails(appliance, as_before):
    with appliance.rest() as client:
        control = client.get("/control/").json()
        before = client.get("/plan/").json()["version"]

        def in_force(**wanted) -> bool:
            plan = client.get("/plan/").json()
            adopted = {line["version"] for line in appliance.events("plan_adopted")}
            return (
                plan["version"] > before
                and plan["version"] in adopted
                and {"strategy": plan["strategy"], "routing": plan["wire"]["routing"]}.items() >= wanted.items()
            )

        with Load(appliance.http, appliance.credentials["api_key"], rate=20) as load:
            for strategy in ("proteus", control["defaults"]["strategy"]):
                assert client.patch("/control/", json={"strategy": strategy}).status_code == 200
                eventually(lambda strategy=strategy: in_force(strategy=strategy), why=f"a plan by {strategy}")
            for routing in control["allowed"]["routing"]:
                assert client.patch("/control/", json={"routing": routing}).status_code == 200
                eventually(lambda routing=routing: in_force(routing=routing), why=f"a plan with {routing}")
            for policy in ("nexus", "clipper", "proteus"):
                sent = load.report.ok
                assert client.patch("/applications/tiny/", json={"batch_policy": policy}).status_code == 200
                eventually(lambda sent=sent: load.report.ok > sent + 20, 20, why=f"answers under {policy}")
            report = load.stop()
    assert report.unanswered == 0
    assert set(report.statuses) == {200}, report.errors[:5]
    assert report.ok == report.sent
