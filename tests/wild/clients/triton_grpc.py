"""tritonclient over gRPC, asyncio, streams. Arguments: the gateway's HTTP and gRPC address and a key."""

import asyncio
import queue
import sys

import numpy as np
from tritonclient import grpc
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

_, GRPC, KEY = sys.argv[1:]
AUTH = {"authorization": f"Bearer {KEY}"}
X = np.array([[1, -2, 3]], np.float32)


def tensor() -> grpc.InferInput:
    given = grpc.InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X)
    return given


def refused(call, *words: str) -> None:
    try:
        call()
    except InferenceServerException as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")


def stream(client: grpc.InferenceServerClient, **options) -> list:
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result), headers=AUTH)
    for number in range(3):
        client.async_stream_infer("vectors", [tensor()], request_id=str(number), **options)
    found = [answers.get(timeout=60) for _ in range(3)]
    client.stop_stream()
    return found


with grpc.InferenceServerClient(GRPC) as client:
    for options in (
        {},
        {"request_id": "заказ-№7"},
        {"parameters": {"tenant": "a", "content_type": "np"}},
        {"priority": 1, "timeout": 60_000_000},
        {"compression_algorithm": "gzip"},
    ):
        result = client.infer("vectors", [tensor()], headers=AUTH, **options)
        np.testing.assert_array_equal(result.as_numpy("y"), -X)
    for wanted in (False, True):
        for number, result in enumerate(stream(client, enable_empty_final_response=wanted)):
            response = result.get_response()
            assert response.id == str(number)
            assert response.parameters["triton_final_response"].bool_param
            np.testing.assert_array_equal(result.as_numpy("y"), -X)
    assert all("leave the version out" in str(error) for error in stream(client, model_version="1"))
    outputs = [grpc.InferRequestedOutput("y", class_count=2)]
    refused(lambda: client.infer("vectors", [tensor()], outputs=outputs, headers=AUTH), "classification: not supported")
    refused(lambda: client.infer("vectors", [tensor()], sequence_id=5, headers=AUTH), "sequences")
    refused(lambda: client.infer("vectors", [tensor()], model_version="1", headers=AUTH), "leave the version out")
    refused(lambda: client.load_model("vectors", headers=AUTH), "not supported; supported are")


async def by_asyncio() -> None:
    async with aio.InferenceServerClient(GRPC) as client:
        result = await client.infer("vectors", [tensor()], headers=AUTH, parameters={"tenant": "a"})
        np.testing.assert_array_equal(result.as_numpy("y"), -X)

        async def asked():
            for number in range(3):
                yield {
                    "model_name": "vectors",
                    "inputs": [tensor()],
                    "request_id": str(number),
                    "enable_empty_final_response": True,
                }

        async for result, error in client.stream_infer(asked(), headers=AUTH):
            assert error is None, error
            np.testing.assert_array_equal(result.as_numpy("y"), -X)


asyncio.run(by_asyncio())
