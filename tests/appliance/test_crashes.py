"""A whole appliance whose model crashes its executor on one input and does not end on another."""

from __future__ import annotations

import sqlite3

import httpx2
import pytest

from tests.executor.harness import endless
from tests.running import ROOT, RunningAppliance, eventually, v2_request, wait_ready

pytestmark = pytest.mark.wide

CRASHING = ROOT / "tests" / "appliance" / "crashing"
SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
}
GOOD, ENDLESS, CRASH = 1.0, 100.0, 666.0


@pytest.fixture(scope="module")
def appliance(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crashes")
    running = RunningAppliance(folder / "home", environment={"PYTHONPATH": f"{CRASHING}:{ROOT}"})
    try:
        running.start()
        with running.rest() as client:
            made = client.post(
                "/applications/", json={"name": "loop", "slo_ms": 200, "signature": SIGNATURE, "late": "serve"}
            )
            assert made.status_code == 201, made.text
            with endless(folder / "endless.onnx").open("rb") as file:
                data = {"name": "endless", "accuracy": "90"}
                made = client.post("/applications/loop/variants/", data=data, files={"file": ("endless.onnx", file)})
            assert made.status_code == 201, made.text
            wait_ready(client, "loop")
        eventually(lambda: devices_up(running) == 2, why="both devices have it warm")
        yield running
    finally:
        running.stop()
        print(running.log()[-20000:])  # shown by pytest when a test failed


def devices_up(appliance) -> int:
    known = httpx2.get(appliance.http + "/health", timeout=60).json()["devices"]
    return sum(bool(device["connected"] and device["warm"]) for device in known.values())


def ask(appliance, value: float) -> httpx2.Response:
    with appliance.inference() as client:
        return client.post("/v2/models/loop/infer", json=v2_request(value=value), timeout=100)


def faults(appliance) -> list[tuple[str, str]]:
    with sqlite3.connect(f"file:{appliance.home / 'nereus.sqlite3'}?mode=ro", uri=True) as database:
        return database.execute("select cause, detail from registry_fault order by id").fetchall()


def test_an_endless_query_fails_and_ordinary_ones_are_answered(appliance):
    answer = ask(appliance, ENDLESS)
    assert answer.status_code == 500
    assert "the run did not end within 2 s and was stopped" in answer.text
    assert [ask(appliance, GOOD).status_code for _ in range(20)] == [200] * 20
    eventually(lambda: ("stopped", "a run of endless did not end within 2 s and was stopped") in faults(appliance))


def test_a_crashing_query_fails_and_does_no_harm_from_then_on(appliance):
    # It is tried once more, alone.
    assert ask(appliance, CRASH).status_code == 500
    eventually(lambda: ask(appliance, GOOD).status_code == 200, why="a device is back")
    crashed = eventually(lambda: {detail for cause, detail in faults(appliance) if cause == "crashed"})
    assert crashed == {"the executor crashed while it ran the variant: killed by SIGSEGV"}
    eventually(lambda: devices_up(appliance) == 2, why="both devices are back")
    answer = ask(appliance, CRASH)
    assert answer.status_code == 500 and "it is refused for another" in answer.text
    assert ask(appliance, GOOD).status_code == 200
