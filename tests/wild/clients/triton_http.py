"""tritonclient over HTTP and its options. Arguments: the gateway's HTTP and gRPC address and a key."""

import sys

import numpy as np
from tritonclient import http
from tritonclient.utils import InferenceServerException

HTTP, _, KEY = sys.argv[1:]
X = np.array([[1, -2, 3]], np.float32)


def auth() -> dict[str, str]:
    """A dict for each call, since the client writes its own headers into it."""
    return {"Authorization": f"Bearer {KEY}"}


def tensor(binary: bool = True) -> http.InferInput:
    given = http.InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return given


def refused(call, *words: str) -> None:
    try:
        call()
    except InferenceServerException as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")


with http.InferenceServerClient(HTTP) as client:
    for binary in (True, False):
        for options in (
            {},
            {"request_id": "заказ-№7"},
            {"parameters": {"tenant": "a", "content_type": "np"}},
            {"priority": 1, "timeout": 60_000_000},
            {"request_compression_algorithm": "gzip", "response_compression_algorithm": "deflate"},
        ):
            result = client.infer("vectors", [tensor(binary)], headers=auth(), **options)
            np.testing.assert_array_equal(result.as_numpy("y"), -X)
    wanted = [http.InferRequestedOutput("y", binary_data=False, class_count=2)]
    refused(
        lambda: client.infer("vectors", [tensor()], outputs=wanted, headers=auth()), "classification: not supported"
    )
    refused(
        lambda: client.infer("vectors", [tensor()], sequence_id=5, sequence_start=True, headers=auth()), "sequences"
    )
    refused(lambda: client.infer("vectors", [tensor()], model_version="1", headers=auth()), "leave the version out")
    refused(lambda: client.get_system_shared_memory_status(headers=auth()), "shared memory is not supported")
    refused(lambda: client.register_system_shared_memory("a", "/a", 64, headers=auth()), "shared memory is not")
    refused(lambda: client.load_model("vectors", headers=auth()), "loading and unloading")
    refused(lambda: client.unload_model("vectors", headers=auth()), "loading and unloading")
    refused(lambda: client.get_trace_settings(headers=auth()), "trace settings are not supported")
    refused(lambda: client.update_log_settings({"log_info": True}, headers=auth()), "log settings are not supported")
    assert "parameters" in client.get_server_metadata(headers=auth())["extensions"]
