"""An operator's desk against a real appliance: applications are tried in the browser and over REST."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import struct
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from tests.appliance.conftest import live
from tests.running import eventually
from tools.chromium import expect

pytestmark = pytest.mark.wide

INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.5, 0.25, -1, 2]}


def png(path, grey: list[int]):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(grey[at : at + 2]) for at in (0, 2))
    head = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    return path


def tried(client, *inputs, **parameters) -> dict:
    answer = client.post("/applications/tiny/try/", json={"inputs": inputs or [INPUT], "parameters": parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def variant(appliance):
    with appliance.rest() as client:
        name = tried(client)["parameters"]["variant"]
        path = f"/applications/tiny/variants/{name}/"
        client.patch(path, json={"pinned": True}).raise_for_status()

        def planned() -> bool:
            plan = client.get("/plan/").raise_for_status().json()
            return any(one["pinned"] and one["name"] == name for one in plan["problem"]["variants"])

        eventually(planned)
        eventually(lambda: tried(client, variant=name)["status"] == 200)
        yield name
        client.patch(path, json={"pinned": False}).raise_for_status()


def test_a_query_by_rest_is_answered_as_a_clients_would_be(appliance, variant):
    with appliance.rest() as client, appliance.inference() as gateway:
        found = tried(client, variant=variant, min_accuracy=50)
        assert (found["status"], found["error"]) == (200, "")
        theirs = gateway.post(f"/v2/models/tiny/versions/{variant}/infer", json={"inputs": [INPUT]}).json()
        (output,) = found["outputs"]
        assert output["data"] == pytest.approx(theirs["outputs"][0]["data"])
        (row,) = output["top"]
        assert [one["value"] for one in row] == sorted(output["data"], reverse=True)
        packed = base64.b64encode(np.array(INPUT["data"], "<f4").tobytes()).decode()
        again = tried(client, {**INPUT, "data": None, "base64": packed}, variant=variant)
        assert again["outputs"][0]["data"] == pytest.approx(output["data"])


def test_a_query_counts_against_a_key_with_limits_that_operators_see(appliance):
    with appliance.rest() as client:
        tried(client)
        (key,) = [key for key in client.get("/api-keys/").json()["results"] if key["name"].startswith("console-")]
        assert (key["rate"], key["burst"]) == (5, 10)


@pytest.mark.parametrize(
    "query, field",
    [
        ({"inputs": []}, "inputs"),
        ({"inputs": [{**INPUT, "base64": "AA=="}]}, "inputs"),
        ({"inputs": [{**INPUT, "data": None, "base64": "?"}]}, "inputs[0].base64"),
        ({"inputs": [INPUT], "parameters": {"variant": "../.."}}, "parameters"),
    ],
)
def test_a_query_that_cannot_be_sent_names_the_field(appliance, query, field):
    with appliance.rest() as client:
        answer = client.post("/applications/tiny/try/", json=query)
        assert answer.status_code == 400
        assert any(error["field"].startswith(field) for error in answer.json()["errors"])


def test_the_gateways_refusal_is_passed_on(appliance):
    with appliance.rest() as client:
        found = tried(client, {**INPUT, "shape": [1, 3], "data": [1, 2, 3]})
        assert found["status"] == 400 and "shape" in found["error"] and found["outputs"] == []


def test_the_examples_send_the_same_query(appliance, variant):
    with appliance.rest() as client:
        found = tried(client, variant=variant, min_accuracy=50)
    environment = {**os.environ, "API_KEY": appliance.credentials["api_key"]}
    curl = subprocess.run(["bash", "-c", found["curl"]], env=environment, capture_output=True, text=True, timeout=60)
    assert f'"variant":"{variant}"' in curl.stdout, curl.stdout + curl.stderr
    script = [sys.executable, "-c", found["tritonclient"]]
    triton = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)
    assert f"'variant': '{variant}'" in triton.stdout, triton.stdout + triton.stderr


def test_values_and_files_are_tried_in_the_browser(appliance, page, faults, tmp_path):
    at = page.get_by_test_id
    page.goto("/applications/tiny/")
    expect(at("try-values-x")).to_have_value("0, 0, 0, 0")
    # It moves the form below it.
    expect(at("frontier")).to_contain_text("items/s in batches of")

    def answered() -> None:
        # What the query before left is gone.
        at("try-answer").evaluate("(answer) => { answer.textContent = ''; }")
        at("try-submit").click()
        expect(at("try-answer")).to_contain_text("answered in")

    at("try-values-x").fill("1, 2, three, 4")
    at("try-submit").click()
    expect(at("try-error")).to_contain_text('"three" is no number')
    at("try-values-x").fill("1, 2, 3, 4")
    answered()
    expect(at("try-top-y-0")).to_contain_text("class ")
    expect(at("example-query")).to_contain_text("[1, 2, 3, 4]")
    np.save(tmp_path / "row.npy", np.array([1, 2, 3, 4], np.float32))
    at("try-file-x").set_input_files(tmp_path / "row.npy")
    answered()
    expect(page.locator("main")).to_contain_text("row.npy: FP32 1 × 4")
    np.save(tmp_path / "doubles.npy", np.zeros((1, 4)))
    at("try-file-x").set_input_files(tmp_path / "doubles.npy")
    at("try-submit").click()
    expect(at("try-error")).to_contain_text("has FP64; the input takes FP32")
    at("try-file-x").set_input_files(png(tmp_path / "grey.png", [0, 85, 170, 255]))
    answered()
    assert faults == []


def test_single_queries_the_frontier_and_an_slos_consequences_are_on_the_page(appliance, page):
    at = page.get_by_test_id
    with appliance.rest() as client:
        tried(client)
        eventually(lambda: client.get("/applications/tiny/queries/").json()["slowest"])
    page.goto("/applications/tiny/")
    expect(at("queries")).to_contain_text("Slowest")
    expect(page.locator("main")).to_contain_text("ms were spent")
    expect(at("frontier")).to_contain_text("items/s in batches of")
    at("settings-form").locator("[name=slo_ms]").fill("1")
    expect(at("slo-consequences")).to_contain_text("1 ms instead of 400 ms")


def test_a_connection_that_idled_takes_the_next_request(appliance):
    with appliance.rest() as client:
        web = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=60)
        with contextlib.closing(web):
            for pause_s in (0, 4):
                time.sleep(pause_s)
                web.request("GET", "/health/")
                assert web.getresponse().read()


def test_the_drawer_lists_a_profiling_and_cancels_it(appliance, page):
    live(page, "/nodes/")
    page.get_by_test_id("tasks-summary").click()
    with appliance.rest() as client:
        (job, *_) = client.post("/applications/tiny/variants/heavy/profile/").json()["jobs"]
        task = page.get_by_test_id(f"task-profiling:{job['id']}")
        expect(task).to_be_visible()
        expect(task).to_contain_text("tiny/heavy")
        answer = client.delete(f"/profile-jobs/{job['id']}/")
        # It may have ended by itself meanwhile.
        assert answer.status_code in (204, 409)
    expect(task).to_contain_text("cancelled" if answer.status_code == 204 else "done")


def test_a_line_for_another_box_is_made_on_the_page(appliance, page):
    at = page.get_by_test_id
    page.goto("/nodes/")
    at("join-minutes").fill("5")
    at("join-submit").click()
    # This console listens on loopback alone, and says so.
    expect(at("join-error")).to_contain_text("NEREUS_CONSOLE")
    at("join-control").fill(appliance.console)
    at("join-submit").click()
    expect(at("join-line")).to_contain_text(f"NEREUS_CONTROL_URL={appliance.console}")
    expect(at("join-line")).to_contain_text("make run ROLE=node")
    with appliance.rest() as client:
        tokens = client.get("/join-tokens/").json()["results"]
        made = [one for one in tokens if one["name"].startswith("join-node-")]
        assert made and all(token["uses"] == 1 and token["expires"] for token in made)
