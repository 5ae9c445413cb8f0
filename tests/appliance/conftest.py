"""One real appliance a process of tests.

It has one application, whose variants are ready.
"""

from __future__ import annotations

import pytest

from tests.running import serving


@pytest.fixture(scope="package")
def appliance(tmp_path_factory, tiny_models):
    """Run an appliance that serves ``tiny``.

    It has two one-core CPU devices where there are two cores.
    """
    periods = {"NEREUS_PLAN_PERIOD_S": "5", "NEREUS_PROMISE_PERIOD_S": "30"}
    with serving(tmp_path_factory.mktemp("appliance") / "home", tiny_models, **periods) as running:
        yield running


@pytest.fixture
def patient(appliance):
    """An SLO that a busy machine keeps, taken back in the end.

    A query that is served late is given up after ten times its SLO, too.
    """
    with appliance.rest() as client:
        slo_ms = client.get("/applications/tiny/").json()["slo_ms"]
        assert client.patch("/applications/tiny/", json={"slo_ms": 10 * slo_ms}).status_code == 200
        yield
        assert client.patch("/applications/tiny/", json={"slo_ms": slo_ms}).status_code == 200
