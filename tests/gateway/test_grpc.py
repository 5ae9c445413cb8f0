"""The real tritonclient works unchanged over gRPC against a real gateway process."""

from __future__ import annotations

import queue

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

import workers
from workers.protocol.datatypes import NUMPY

from .conftest import AUTH, KEY

X = np.array([[1, 2, 3, 4], [-1, 0.5, 0.25, 1e-3]], np.float32)
KEYED = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def client(served):
    with triton.InferenceServerClient(served.grpc) as client:
        yield client


def numbers(x: np.ndarray = X) -> list[triton.InferInput]:
    tensor = triton.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    return [tensor]


def test_tells_that_it_is_alive_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("numbers", headers=KEYED)
    assert client.is_model_ready("numbers", "big", headers=KEYED)
    assert not client.is_model_ready("numbers", "small", headers=KEYED)
    assert not client.is_model_ready("nothing", headers=KEYED)


def test_describes_itself_as_over_http(client, served):
    http = served.http
    server = client.get_server_metadata(headers=KEYED, as_json=True)
    assert server == http.get("/v2", headers=AUTH).json()
    assert (server["name"], server["version"]) == ("nereus", workers.__version__)
    metadata = client.get_model_metadata("numbers", headers=KEYED)
    assert (metadata.name, list(metadata.versions)) == ("numbers", ["big"])
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("x", "FP32", [-1, 4])]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
        ("y", "FP32", [-1, 4]),
        ("n", "INT64", [-1]),
    ]
    config = client.get_model_config("numbers", headers=KEYED, as_json=True)["config"]
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": ["4"]}]
    assert config["parameters"]["slo_ms"] == {"string_value": "60000"}
    index = client.get_model_repository_index(headers=KEYED)
    assert [(m.name, m.state) for m in index.models] == [(n, "READY") for n in ("every", "nan", "numbers", "words")]


def test_statistics_count_what_was_answered(client):
    def counts():
        (model,) = client.get_inference_statistics("words", headers=KEYED).model_stats
        return model.inference_stats.success.count, model.inference_count

    before = counts()
    text = triton.InferInput("text", [2, 1], "BYTES")
    text.set_data_from_numpy(np.array([[b"a"], [b"b"]], object))
    client.infer("words", [text], headers=KEYED)
    assert np.subtract(counts(), before).tolist() == [1, 2]
    everything = client.get_inference_statistics(headers=KEYED).model_stats
    assert [model.name for model in everything] == ["every", "nan", "numbers", "words"]


def test_infers_and_tells_who_answered(client):
    wanted = [triton.InferRequestedOutput("n"), triton.InferRequestedOutput("y")]
    parameters = {"latency_ms": 900, "min_accuracy": 94.5}
    result = client.infer("numbers", numbers(), "big", wanted, "q-7", parameters=parameters, priority=3, headers=KEYED)
    np.testing.assert_array_equal(result.as_numpy("y"), X * 2)
    np.testing.assert_array_equal(result.as_numpy("n"), [10, -1])
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("q-7", "numbers", "big")
    assert [output.name for output in response.outputs] == ["n", "y"]
    assert len(response.raw_output_contents) == 2
    returned = {name: (p.WhichOneof("parameter_choice"), p) for name, p in response.parameters.items()}
    assert {name: choice for name, (choice, _) in returned.items()} == {
        "variant": "string_param",
        "accuracy": "double_param",
        "device": "string_param",
        "queue_ms": "double_param",
        "batch_size": "int64_param",
        "network_ms": "double_param",
        "batch_ms": "double_param",
        "model_ms": "double_param",
    }
    assert returned["variant"][1].string_param == "big"
    assert returned["accuracy"][1].double_param == 95.0
    assert returned["device"][1].string_param == "d0"
    assert returned["batch_size"][1].int64_param == 2


def test_gives_only_the_outputs_asked_for_and_all_when_none_is_named(client):
    one = client.infer("numbers", numbers(), outputs=[triton.InferRequestedOutput("n")], headers=KEYED)
    assert one.as_numpy("y") is None
    assert one.as_numpy("n").tolist() == [10, -1]
    every = client.infer("numbers", numbers(), headers=KEYED)
    assert [output.name for output in every.get_response().outputs] == ["y", "n"]


def test_carries_every_datatype_both_ways(client):
    inputs, sent = [], {}
    for name in (*NUMPY, "BYTES", "BF16"):
        if name == "BYTES":
            value = np.array([[b"\x00", b""], ["ü".encode(), b"x" * 300]], object)
        elif name == "BF16":
            value = np.array([[1.5, -2], [0, 3]], ml_dtypes.bfloat16)
        else:
            value = np.array([[0, 1], [1, 0]]).astype(NUMPY[name])
        tensor = triton.InferInput(name.lower(), [2, 2], name)
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
        sent[name] = value
    result = client.infer("every", inputs, headers=KEYED)
    for name, value in sent.items():
        np.testing.assert_array_equal(result.as_numpy("out_" + name.lower()), value)


def test_what_is_not_a_number_comes_through(client):
    # JSON could not say it; raw contents can.
    assert np.isnan(client.infer("nan", numbers(), headers=KEYED).as_numpy("y")).all()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_reads_compressed_messages(client, algorithm):
    x = np.tile(X, (32, 16)).reshape(-1, 4)[:64]
    result = client.infer("numbers", numbers(x), headers=KEYED, compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("y"), x * 2)


def test_infers_asynchronously(client):
    answers = queue.SimpleQueue()
    for i in range(20):
        client.async_infer(
            "numbers",
            numbers(X * i),
            lambda result, error: answers.put((result, error)),
            request_id=str(i),
            headers=KEYED,
        )
    found = {}
    for _ in range(20):
        result, error = answers.get(timeout=60)
        assert error is None
        found[int(result.get_response().id)] = result.as_numpy("y")
    assert sorted(found) == list(range(20))
    for i, y in found.items():
        np.testing.assert_array_equal(y, X * i * 2)


def test_a_stream_answers_in_order_and_goes_on_after_errors(client):
    answers = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put((result, error)), headers=KEYED)
    for i in range(100):
        client.async_stream_infer("nothing" if i == 50 else "numbers", numbers(X * i), request_id=str(i))
    for i in range(100):
        result, error = answers.get(timeout=60)
        if i == 50:
            assert "model 'nothing': no such application" in str(error)
        else:
            assert (error, result.get_response().id) == (None, str(i))
            np.testing.assert_array_equal(result.as_numpy("y"), X * i * 2)
    client.stop_stream()


async def test_the_asyncio_client_works(served):
    async with triton_aio.InferenceServerClient(served.grpc) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert (await client.get_server_metadata(headers=KEYED)).name == "nereus"
        tensor = triton_aio.InferInput("x", [2, 4], "FP32")
        tensor.set_data_from_numpy(X)
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
