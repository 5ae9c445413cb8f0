"""The real tritonclient works unchanged against a real gateway process."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from .conftest import AUTH

X = np.array([[1, 2, 3, 4], [-1, 0.5, 0.25, 1e-3]], np.float32)


@pytest.fixture
def client(served):
    with triton.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        yield client


def numbers(binary: bool) -> list[triton.InferInput]:
    tensor = triton.InferInput("x", [2, 4], "FP32")
    tensor.set_data_from_numpy(X, binary_data=binary)
    return [tensor]


def test_tells_that_it_is_alive_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("numbers", headers=dict(AUTH))
    assert client.is_model_ready("numbers", "big", headers=dict(AUTH))
    assert not client.is_model_ready("numbers", "small", headers=dict(AUTH))
    assert not client.is_model_ready("nothing", headers=dict(AUTH))


def test_describes_itself(client):
    assert client.get_server_metadata(headers=dict(AUTH))["name"] == "nereus"
    metadata = client.get_model_metadata("numbers", headers=dict(AUTH))
    assert metadata["versions"] == ["big"]
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    config = client.get_model_config("numbers", headers=dict(AUTH))
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    index = client.get_model_repository_index(headers=dict(AUTH))
    assert [(e["name"], e["state"]) for e in index] == [(n, "READY") for n in ("every", "nan", "numbers", "words")]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infers_with_json_and_binary_data(client, binary_in, binary_out):
    wanted = [triton.InferRequestedOutput("n", binary_out), triton.InferRequestedOutput("y", binary_out)]
    began = time.monotonic()
    result = client.infer("numbers", numbers(binary_in), outputs=wanted, request_id="q-7", headers=dict(AUTH))
    took_ms = 1e3 * (time.monotonic() - began)
    np.testing.assert_array_equal(result.as_numpy("y"), X * 2)
    np.testing.assert_array_equal(result.as_numpy("n"), [10, -1])
    response = result.get_response()
    assert response["id"] == "q-7"
    assert response["model_name"] == "numbers"
    assert response["model_version"] == "big"
    assert [output["name"] for output in response["outputs"]] == ["n", "y"]
    parameters = response["parameters"]
    assert parameters["variant"] == "big"
    assert parameters["accuracy"] == 95.0
    assert parameters["device"] == "d0"
    assert parameters["batch_size"] == 2
    # The device has no queue: what there is passed in the gateway.
    assert 0 <= parameters["queue_ms"] < took_ms


def test_gives_only_the_outputs_asked_for(client):
    wanted = [triton.InferRequestedOutput("n")]
    result = client.infer("numbers", numbers(True), outputs=wanted, headers=dict(AUTH))
    assert result.as_numpy("y") is None


def test_gives_all_outputs_when_none_is_named(client):
    result = client.infer("numbers", numbers(True), headers=dict(AUTH))
    assert [output["name"] for output in result.get_response()["outputs"]] == ["y", "n"]
    np.testing.assert_array_equal(result.as_numpy("y"), X * 2)


def test_asks_for_a_variant_as_a_version(client):
    result = client.infer("numbers", numbers(True), model_version="big", headers=dict(AUTH))
    assert result.get_response()["model_version"] == "big"
    with pytest.raises(InferenceServerException, match="no such variant of numbers; it has big"):
        client.infer("numbers", numbers(True), model_version="huge", headers=dict(AUTH))


def test_sends_its_own_and_our_parameters(client):
    parameters = {"latency_ms": 900, "min_accuracy": 90.5}
    client.infer("numbers", numbers(True), headers=dict(AUTH), parameters=parameters, timeout=800_000, priority=1)
    with pytest.raises(InferenceServerException, match="min_accuracy: 96 cannot be met; the best available now is 95"):
        client.infer("numbers", numbers(True), headers=dict(AUTH), parameters={"min_accuracy": 96})


def test_reports_statistics(client):
    before = client.get_inference_statistics("numbers", headers=dict(AUTH))["model_stats"][0]
    client.infer("numbers", numbers(True), headers=dict(AUTH))
    after = client.get_inference_statistics("numbers", headers=dict(AUTH))["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 2
    success = after["inference_stats"]["success"]
    assert success["count"] == before["inference_stats"]["success"]["count"] + 1
    assert success["ns"] > 0
    assert after["last_inference"] > 1.6e12
