"""The real tritonclient gets every datatype, shape and size through gateway, executor and onnxruntime."""

from __future__ import annotations

import asyncio

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from tests.gateway.conftest import AUTH
from workers.protocol.datatypes import NUMPY

from .models import DATATYPES, NUMBERS


@pytest.fixture
def client(served):
    with triton.InferenceServerClient(f"127.0.0.1:{served.port}", network_timeout=300) as client:
        yield client


def values(datatype: str) -> np.ndarray:
    """Two rows with what is special about a datatype."""
    if datatype == "BOOL":
        return np.array([[True, False], [False, True]])
    if datatype == "BF16":
        return np.array([[1.5, -2.0], [0.0, 3e38]], ml_dtypes.bfloat16)
    dtype = NUMPY[datatype]
    info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([[info.min, info.max], [0, 1]], dtype)


def tensor(name: str, datatype: str, array: np.ndarray, binary: bool = True) -> triton.InferInput:
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def every() -> list[triton.InferInput]:
    return [tensor(d.lower(), d, values(d)) for d in DATATYPES]


def same(datatype: str, got: np.ndarray) -> bool:
    expected = values(datatype)
    return got.dtype == expected.dtype and np.array_equal(got, expected)


def test_every_datatype_goes_through_a_model_and_back(client):
    result = client.infer("every", every(), headers=dict(AUTH))
    assert [d for d in DATATYPES if not same(d, result.as_numpy("out_" + d.lower()))] == []


def test_binary_and_json_outputs_stand_in_one_answer(client):
    wanted = [
        triton.InferRequestedOutput("out_" + d.lower(), i % 2 == 0 or d == "BF16") for i, d in enumerate(DATATYPES)
    ]
    result = client.infer("every", every(), outputs=wanted, request_id="mixed", headers=dict(AUTH))
    assert result.get_response()["id"] == "mixed"
    for i, d in enumerate(DATATYPES):
        described = result.get_output("out_" + d.lower())
        assert ("data" in described) != (i % 2 == 0 or d == "BF16")
        assert same(d, result.as_numpy("out_" + d.lower()))


def test_bf16_as_json_is_refused_with_the_way_out(client):
    wanted = [triton.InferRequestedOutput("out_bf16", False)]
    with pytest.raises(InferenceServerException, match=r"outputs\.out_bf16: BF16 has no JSON form; ask for binary"):
        client.infer("every", every(), outputs=wanted, headers=dict(AUTH))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_both_ways(client, algorithm):
    x = np.tile(np.arange(50, dtype=np.float32), (8, 20))
    result = client.infer(
        "vectors",
        [tensor("x", "FP32", x)],
        headers=dict(AUTH),
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    np.testing.assert_array_equal(result.as_numpy("y"), -x)


@pytest.mark.parametrize("binary", [True, False])
def test_empty_sequences_are_answered(client, binary):
    ids = np.zeros((2, 0), np.int64)
    wanted = [triton.InferRequestedOutput(name, binary) for name in ("masked", "total", "width")]
    given = [tensor("ids", "INT64", ids, binary), tensor("mask", "INT64", ids, binary)]
    result = client.infer("tokens", given, outputs=wanted, headers=dict(AUTH))
    assert result.get_output("masked")["shape"] == [2, 0]
    assert result.as_numpy("total").tolist() == [0, 0]


def test_a_query_without_rows_is_refused(client):
    ids = np.zeros((0, 3), np.int64)
    with pytest.raises(InferenceServerException, match=r"inputs\.ids\.shape\[0\]: is 0, must be at least 1"):
        client.infer("tokens", [tensor("ids", "INT64", ids), tensor("mask", "INT64", ids)], headers=dict(AUTH))


def test_64_megabytes_go_there_and_back(client):
    x = np.arange(16 * 2**20, dtype=np.float32).reshape(1, -1)
    result = client.infer("vectors", [tensor("x", "FP32", x)], headers=dict(AUTH))
    assert np.array_equal(result.as_numpy("y"), -x)


def test_what_unpacks_to_more_than_the_limit_is_refused(client):
    x = np.zeros((1, 22 * 2**20), np.float32)
    with pytest.raises(InferenceServerException, match="at most 83886080 bytes once decompressed"):
        client.infer("vectors", [tensor("x", "FP32", x)], headers=dict(AUTH), request_compression_algorithm="deflate")


@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (2, 3, 5, 9), (1, 3, 1, 1)])
def test_images_of_any_size(client, shape):
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    result = client.infer("images", [tensor("x", "FP32", x)], headers=dict(AUTH))
    np.testing.assert_allclose(result.as_numpy("y"), x.mean(axis=(2, 3)), rtol=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_several_rows_for_a_model_that_takes_one(client, binary):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = client.infer("single", [tensor("x", "FP32", x, binary)], headers=dict(AUTH))
    np.testing.assert_array_equal(result.as_numpy("y"), -x)


def test_text_that_is_not_utf8_is_refused_by_element(client):
    given = triton.InferInput("text", [3, 1], "BYTES")
    given.set_data_from_numpy(np.array([[b"a"], [b"\xff"], [b"c"]], dtype=object))
    with pytest.raises(InferenceServerException, match=r"inputs\.text\.data: element 1 of BYTES is not UTF-8"):
        client.infer("text", [given], headers=dict(AUTH))


def sequence(length: int, first: int) -> tuple[np.ndarray, list[triton.InferInput]]:
    ids = np.arange(first, first + length, dtype=np.int64).reshape(1, -1)
    return ids, [tensor("ids", "INT64", ids), tensor("mask", "INT64", np.ones_like(ids))]


@pytest.mark.parametrize("name", ["tokens", "padded"])
def test_many_lengths_at_once_each_get_their_own_answer(served, name):
    with triton.InferenceServerClient(f"127.0.0.1:{served.port}", concurrency=24) as many:
        asked = [sequence(1 + i % 5, i) for i in range(120)]
        waiting = [(ids, many.async_infer(name, given, headers=dict(AUTH))) for ids, given in asked]
        for ids, one in waiting:
            result = one.get_result()
            np.testing.assert_array_equal(result.as_numpy("masked"), ids)
            assert result.as_numpy("total").tolist() == [ids.sum()]
            if name == "tokens":
                assert result.as_numpy("width").tolist() == [ids.shape[1]]


async def test_the_asyncio_client_does_all_that(served):
    async with aio.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        result = await client.infer("every", every(), headers=dict(AUTH), response_compression_algorithm="gzip")
        assert [d for d in DATATYPES if not same(d, result.as_numpy("out_" + d.lower()))] == []
        asked = [sequence(1 + i % 3, i) for i in range(24)]
        answers = await asyncio.gather(*(client.infer("padded", given, headers=dict(AUTH)) for _, given in asked))
        for (ids, _), result in zip(asked, answers, strict=True):
            np.testing.assert_array_equal(result.as_numpy("masked"), ids)
        index = await client.get_model_repository_index(headers=dict(AUTH))
        assert {entry["name"]: entry["state"] for entry in index}["padded"] == "READY"
        metadata = await client.get_model_metadata("images", headers=dict(AUTH))
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
        statistics = await client.get_inference_statistics("padded", headers=dict(AUTH))
        assert statistics["model_stats"][0]["inference_count"] >= 24


@pytest.mark.parametrize("binary", [True, False])
def test_text_goes_through_a_model_and_back(client, binary):
    text = np.array([["grün"], [""], ["a\0b"], ["日本"]], dtype=object)
    encoded = np.array([[item.encode()] for item in text[:, 0]], dtype=object)
    wanted = [triton.InferRequestedOutput("again", binary)]
    result = client.infer("text", [tensor("text", "BYTES", encoded, binary)], outputs=wanted, headers=dict(AUTH))
    got = [item.decode() if isinstance(item, bytes) else item for item in result.as_numpy("again").ravel()]
    assert got == list(text.ravel())


def test_strings_of_every_length_survive(client):
    # More than 255 and more than 65,535 bytes: every byte of the length counts.
    text = np.array([["x" * size] for size in (0, 1, 255, 256, 65_536)], dtype=object)
    given = triton.InferInput("text", [5, 1], "BYTES")
    given.set_data_from_numpy(text)
    result = client.infer("text", [given], headers=dict(AUTH))
    assert serialize_byte_tensor(result.as_numpy("again")).item() == serialize_byte_tensor(text).item()


def reciprocal_outputs(client, name: str, x: list[float], binary: tuple[str, ...]) -> triton.InferResult:
    given = tensor("x", "FP32", np.array([x], np.float32), binary=False)
    outputs = [f"y_{d.lower()}" for d in NUMBERS] + ["size"]
    wanted = [triton.InferRequestedOutput(output, output in binary) for output in outputs]
    return client.infer(name, [given], outputs=wanted, headers=dict(AUTH))


def test_null_stands_for_what_is_no_number_in_several_outputs(client):
    result = reciprocal_outputs(client, "nulls", [4, 0, -0.0, 1e-6], ("y_bf16",))
    # 1e6 is infinite in FP16 alone.
    found = {name: result.get_output(name)["data"] for name in ("y_fp16", "y_fp32", "y_fp64", "size")}
    assert found["y_fp16"] == [0.25, None, None, None]
    assert found["y_fp32"][:3] == found["y_fp64"][:3] == [0.25, None, None]
    assert found["y_fp32"][3] == pytest.approx(1e6) == found["y_fp64"][3]
    assert found["size"] == [4, 0, 0, 0]
    assert np.isnan(result.as_numpy("y_bf16").astype(np.float32)).tolist() == [[False, True, True, False]]


def test_without_that_setting_such_an_output_is_refused_and_others_are_not(client):
    with pytest.raises(InferenceServerException, match=r"outputs\.y_fp16: has NaN or infinity.*non_finite") as caught:
        reciprocal_outputs(client, "reciprocals", [1e-6], ("y_bf16", "y_fp32", "y_fp64"))
    assert caught.value.status() == "422"
    result = reciprocal_outputs(client, "reciprocals", [1e-6], ("y_bf16", "y_fp16"))
    assert np.isinf(result.as_numpy("y_fp16")).all()
    assert result.get_output("size")["data"] == [0]
