"""One real appliance a process of tests.

It has one application, whose variants are ready.
"""

from __future__ import annotations

import pytest

from tests.running import RunningAppliance, eventually, register


@pytest.fixture(scope="package")
def appliance(tmp_path_factory, tiny_models):
    """Run an appliance that serves ``tiny``.

    It has two one-core CPU devices where there are two cores.
    """
    running = RunningAppliance(tmp_path_factory.mktemp("appliance") / "home", environment={"NEREUS_PLAN_PERIOD_S": "5"})
    try:
        running.start()
        with running.rest() as client:
            # Served even when late: what fails then failed for another reason than a busy machine.
            register(client, "tiny", tiny_models, late="serve")
        with running.inference() as client:
            eventually(lambda: client.get("/v2/models/tiny/ready").status_code == 200, why="tiny ready to serve")
        yield running
    finally:
        running.stop()
        print(running.log()[-20000:])  # shown by pytest when a test failed


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
