"""The real tritonclient works unchanged over HTTP and gRPC against a gateway.

What models make of every datatype, shape and coding is in ``tests/wild``, with real executors.
"""

from __future__ import annotations

import queue

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.grpc.aio as aio
import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException

import workers
from workers.protocol.datatypes import NUMPY

from .conftest import AUTH, KEY

X = np.array([[1, 2, 3, 4], [-1, 0.5, 0.25, 1e-3]], np.float32)
KEYED = {"authorization": f"Bearer {KEY}"}


class Client:
    """A client of either kind, with what differs between them."""

    def __init__(self, triton, address: str):
        self.triton = triton
        self.json = {} if triton is over_http else {"as_json": True}
        self.client = triton.InferenceServerClient(address)

    def told(self, what: str, *names: str) -> dict:
        return getattr(self.client, f"get_{what}")(*names, headers=dict(KEYED), **self.json)

    def infer(self, application: str = "numbers", x: np.ndarray = X, outputs: str = "", **given):
        tensor = self.triton.InferInput("x", list(x.shape), "FP32").set_data_from_numpy(x)
        wanted = [self.triton.InferRequestedOutput(name) for name in outputs.split()] or None
        return self.client.infer(application, [tensor], outputs=wanted, headers=dict(KEYED), **given)

    def response(self, result) -> tuple[dict, dict]:
        if self.triton is over_http:
            response = result.get_response()
            return response, response["parameters"]
        response = result.get_response()
        values = {n: getattr(p, p.WhichOneof("parameter_choice")) for n, p in response.parameters.items()}
        names = ("id", "model_name", "model_version")
        outputs = [{"name": output.name} for output in response.outputs]
        return {**{name: getattr(response, name) for name in names}, "outputs": outputs}, values


@pytest.fixture(params=["http", "grpc"])
def client(request, served):
    http = request.param == "http"
    made = Client(over_http if http else over_grpc, f"127.0.0.1:{served.port}" if http else served.grpc)
    with made.client:
        yield made


@pytest.fixture
def grpc_client(served):
    with over_grpc.InferenceServerClient(served.grpc) as client:
        yield client


def test_tells_that_it_is_alive_and_ready(client):
    triton = client.client
    assert triton.is_server_live() and triton.is_server_ready()
    ready = [("numbers",), ("numbers", "big"), ("numbers", "small"), ("nothing",)]
    assert [triton.is_model_ready(*names, headers=dict(KEYED)) for names in ready] == [True, True, False, False]


def test_describes_itself(client, served):
    server = client.told("server_metadata")
    assert server == served.http.get("/v2", headers=AUTH).json()
    assert (server["name"], server["version"]) == ("nereus", workers.__version__)
    metadata = client.told("model_metadata", "numbers")
    assert (metadata["name"], metadata["versions"]) == ("numbers", ["big"])
    tensors = [(t["name"], t["datatype"], list(map(int, t["shape"]))) for t in metadata["inputs"] + metadata["outputs"]]
    assert tensors == [("x", "FP32", [-1, 4]), ("y", "FP32", [-1, 4]), ("n", "INT64", [-1])]
    config = client.told("model_config", "numbers")
    config = config.get("config", config)
    (only,) = config["input"]
    assert (only["name"], only["data_type"], list(map(int, only["dims"]))) == ("x", "TYPE_FP32", [4])
    assert config["parameters"]["slo_ms"] == {"string_value": "60000"}
    index = client.told("model_repository_index")
    index = index["models"] if isinstance(index, dict) else index
    assert [(m["name"], m["state"]) for m in index] == [(n, "READY") for n in ("every", "nan", "numbers", "words")]


def test_infers_and_tells_who_answered(client):
    parameters = {"latency_ms": 9000, "min_accuracy": 94.5}
    result = client.infer(outputs="n y", model_version="big", request_id="q-7", parameters=parameters, priority=3)
    np.testing.assert_array_equal(result.as_numpy("y"), X * 2)
    np.testing.assert_array_equal(result.as_numpy("n"), [10, -1])
    response, told = client.response(result)
    assert (response["id"], response["model_name"], response["model_version"]) == ("q-7", "numbers", "big")
    assert [output["name"] for output in response["outputs"]] == ["n", "y"]
    stages = [told.pop(name) for name in ("queue_ms", "network_ms", "batch_ms", "model_ms")]
    assert told == {"variant": "big", "accuracy": 95.0, "device": "d0", "batch_size": 2}
    assert all(type(value) is float and value >= 0 for value in stages)


def test_gives_the_outputs_asked_for_and_all_when_none_is_named(client):
    one = client.infer(outputs="n")
    assert one.as_numpy("y") is None and one.as_numpy("n").tolist() == [10, -1]
    response, _ = client.response(client.infer())
    assert [output["name"] for output in response["outputs"]] == ["y", "n"]


def test_is_told_what_it_asked_for_in_vain(client):
    with pytest.raises(InferenceServerException, match="no such variant of numbers; it has big"):
        client.infer(model_version="huge")
    with pytest.raises(InferenceServerException, match="min_accuracy: 96 cannot be met; the best available now is 95"):
        client.infer(parameters={"min_accuracy": 96})


def test_statistics_count_what_was_answered(client):
    def counts() -> tuple[int, int, int]:
        (model,) = client.told("inference_statistics", "numbers")["model_stats"]
        success = model["inference_stats"]["success"]
        return int(success["count"]), int(model["inference_count"]), int(success["ns"])

    client.infer()  # gRPC as JSON leaves zeros out
    before = counts()
    client.infer()
    more = np.subtract(counts(), before).tolist()
    assert more[:2] == [1, 2] and more[2] > 0
    every = client.told("inference_statistics")["model_stats"]
    assert [model["name"] for model in every] == ["every", "nan", "numbers", "words"]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infers_with_json_and_binary_data(served, binary_in, binary_out):
    tensor = over_http.InferInput("x", [2, 4], "FP32").set_data_from_numpy(X, binary_data=binary_in)
    wanted = [over_http.InferRequestedOutput("y", binary_out)]
    with over_http.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        result = client.infer("numbers", [tensor], outputs=wanted, headers=dict(AUTH))
    np.testing.assert_array_equal(result.as_numpy("y"), X * 2)
    assert ("data" in result.get_output("y")) is not binary_out


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compresses_both_ways_over_http(served, algorithm):
    x = np.tile(X, (32, 1))
    tensor = over_http.InferInput("x", [64, 4], "FP32").set_data_from_numpy(x)
    coded = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    with over_http.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        for binary in (True, True, False):
            wanted = [over_http.InferRequestedOutput("y", binary)]
            result = client.infer("numbers", [tensor], outputs=wanted, headers=dict(AUTH), **coded)
            np.testing.assert_array_equal(result.as_numpy("y"), x * 2)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_reads_compressed_messages(grpc_client, algorithm):
    x = np.tile(X, (32, 1))
    tensor = over_grpc.InferInput("x", [64, 4], "FP32").set_data_from_numpy(x)
    result = grpc_client.infer("numbers", [tensor], headers=KEYED, compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("y"), x * 2)


def test_carries_every_datatype_both_ways(grpc_client):
    inputs, sent = [], {}
    for name in (*NUMPY, "BYTES", "BF16"):
        if name == "BYTES":
            value = np.array([[b"\x00", b""], ["ü".encode(), b"x" * 300]], object)
        elif name == "BF16":
            value = np.array([[1.5, -2], [0, 3]], ml_dtypes.bfloat16)
        else:
            value = np.array([[0, 1], [1, 0]]).astype(NUMPY[name])
        tensor = over_grpc.InferInput(name.lower(), [2, 2], name).set_data_from_numpy(value)
        inputs.append(tensor)
        sent[name] = value
    result = grpc_client.infer("every", inputs, headers=KEYED)
    for name, value in sent.items():
        np.testing.assert_array_equal(result.as_numpy("out_" + name.lower()), value)


def test_what_is_not_a_number_comes_through(client):
    # JSON could not say it; binary data and raw contents can.
    assert np.isnan(client.infer("nan").as_numpy("y")).all()


def test_a_stream_answers_in_order_and_goes_on_after_errors(grpc_client):
    answers = queue.SimpleQueue()
    grpc_client.start_stream(lambda result, error: answers.put((result, error)), headers=KEYED)
    for i in range(100):
        tensor = over_grpc.InferInput("x", [2, 4], "FP32").set_data_from_numpy(X * i)
        grpc_client.async_stream_infer("nothing" if i == 50 else "numbers", [tensor], request_id=str(i))
    for i in range(100):
        result, error = answers.get(timeout=60)
        if i == 50:
            assert "model 'nothing': no such application" in str(error)
        else:
            assert (error, result.get_response().id) == (None, str(i))
            np.testing.assert_array_equal(result.as_numpy("y"), X * i * 2)
    grpc_client.stop_stream()


async def test_the_asyncio_client_works(served):
    async with aio.InferenceServerClient(served.grpc) as client:
        assert await client.is_server_live()
        tensor = aio.InferInput("x", [2, 4], "FP32").set_data_from_numpy(X)
        result = await client.infer("numbers", [tensor], request_id="a", headers=KEYED)
        np.testing.assert_array_equal(result.as_numpy("y"), X * 2)
        with pytest.raises(InferenceServerException, match="no such application"):
            await client.infer("nothing", [tensor], headers=KEYED)

        async def queries():
            for i in range(5):
                yield {"model_name": "numbers", "inputs": [tensor], "request_id": str(i)}

        ids = []
        async for result, error in client.stream_infer(queries(), headers=KEYED):
            assert error is None
            ids.append(result.get_response().id)
        assert ids == ["0", "1", "2", "3", "4"]
