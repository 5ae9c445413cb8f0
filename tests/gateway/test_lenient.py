"""Queries as clients of other servers send them."""

from __future__ import annotations

import gzip
import json
import socket

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from workers.net import compression

from .conftest import AUTH
from .test_bad_queries import PATH, request, tensor
from .test_grpc_errors import CODE, KEYED, SERVICE, call, refused
from .test_grpc_errors import request as message


def answered(response) -> bool:
    return response.status_code == 200 and response.json()["outputs"][0]["data"] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "body",
    [
        request(id=None, parameters=None, outputs=None),
        request(tensor(parameters=None) | {"parameters": None}, outputs=[{"name": "y", "parameters": None}]),
        request(tensor(parameters={"binary_data_size": None, "content_type": None})),
        request(parameters=dict.fromkeys(("latency_ms", "timeout", "min_accuracy", "priority", "binary_data_output"))),
        request(outputs=[{"name": "y", "parameters": {"binary_data": None, "classification": None}}]),
        request(parameters={"content_type": "np", "headers": {"a": [1]}, "tenant": 7}),
        request(tensor(parameters={"content_type": "np", "my": [{}]}), outputs=[{"name": "y", "parameters": {"x": 1}}]),
        request(parameters={"sequence_id": 0, "sequence_start": False, "triton_enable_empty_final_response": True}),
        request(tensor(parameters={"binary_data_size": 16})),
    ],
)
def test_null_is_left_out_and_unknown_parameters_are_ignored(served, body):
    assert answered(served.post(PATH, body))


@pytest.mark.parametrize("field", ["name", "datatype", "shape"])
def test_a_field_that_is_needed_is_named_where_it_is_null(served, field):
    response = served.post(PATH, {"inputs": [tensor() | {field: None}]})
    assert response.status_code == 400
    assert f"$.inputs[0].{field}" in response.json()["error"]


def test_null_as_data_is_left_out_beside_binary_data(served):
    head = json.dumps(request(tensor(parameters={"binary_data_size": 16}) | {"data": None})).encode()
    body = head + b"\0\0\x80?\0\0\0@\0\0@@\0\0\x80@"
    assert answered(served.post(PATH, body, **{"Inference-Header-Content-Length": str(len(head))}))


def test_the_metadata_still_lists_parameters(served):
    assert "parameters" in served.http.get("/v2", headers=AUTH).json()["extensions"]


@pytest.mark.parametrize("coding", ["x-gzip", "X-GZip", "gzip"])
@pytest.mark.parametrize("cut", [None, 20])
def test_gzip_is_read_by_its_old_name_and_in_several_members(served, coding, cut):
    body = json.dumps(request()).encode()
    pieces = [body] if cut is None else [body[:cut], b"", body[cut:]]
    data = b"".join(gzip.compress(piece, mtime=0) for piece in pieces)
    assert answered(served.post(PATH, data, **{"Content-Encoding": coding}))


@pytest.mark.parametrize("members", [(b"{}", b" " * 2_000_000), (b" " * 50_000,) * 2])
def test_several_members_have_the_bounds_of_one(served, members):
    data = b"".join(gzip.compress(member, mtime=0) for member in members)
    response = served.post(PATH, data, **{"Content-Encoding": "gzip"})
    assert response.status_code == 413
    assert "at most 81920 bytes once decompressed" in response.json()["error"]


def test_members_are_counted():
    member = gzip.compress(b"", mtime=0)
    assert compression.decompress(b"gzip", member * compression.MOST_MEMBERS, 0) == b""
    with pytest.raises(compression.CompressionError, match="at most 4096 members are taken"):
        compression.decompress(b"gzip", member * (compression.MOST_MEMBERS + 1), 0)


def test_what_follows_a_member_must_be_one(served):
    response = served.post(PATH, gzip.compress(b"{}", mtime=0) + b"more", **{"Content-Encoding": "gzip"})
    assert (response.status_code, response.json()["error"]) == (400, "body: not valid gzip: something follows its end")


def test_http2_without_tls_is_told_what_is_spoken_here(served):
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        head = connection.recv(1000)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"HTTP/2 is not spoken at this port; send HTTP/1.1" in head


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/v2/systemsharedmemory/status", "shared memory is not supported"),
        ("POST", "/v2/systemsharedmemory/region/a/register", "shared memory is not supported"),
        ("POST", "/v2/cudasharedmemory/unregister", "shared memory is not supported"),
        ("POST", "/v2/repository/models/numbers/load", "loading and unloading"),
        ("POST", "/v2/repository/models/numbers/unload", "loading and unloading"),
        ("GET", "/v2/trace/setting", "trace settings are not supported"),
        ("POST", "/v2/models/numbers/trace/setting", "trace settings are not supported"),
        ("GET", "/v2/models/numbers/versions/big/trace/setting", "trace settings are not supported"),
        ("GET", "/v2/logging", "log settings are not supported"),
        ("POST", "/v2/models/numbers/generate_stream", "generating text is not supported"),
    ],
)
def test_extensions_that_are_not_served_are_named_with_what_is(served, method, path, words):
    response = served.http.request(method, path, headers=AUTH, content=b"{}" if method == "POST" else b"")
    assert response.status_code == 501
    error = response.json()["error"]
    assert words in error
    assert "supported are /v2/health/live, " in error and "/v2/models/M[/versions/V]/infer" in error


@pytest.mark.parametrize("path", ["/v2/logs", "/v2/models/trace/nothing", "/v2/models/numbers/versions/big/nothing"])
def test_other_paths_are_not_found(served, path):
    assert served.http.get(path, headers=AUTH).status_code == 404


def test_a_version_as_triton_counts_them_is_told_what_versions_are(served):
    response = served.infer([[1, 2, 3, 4]], version="1")
    assert response.status_code == 404
    assert "it has big. Versions are names of variants: leave the version out" in response.json()["error"]


def test_grpc_takes_them_too(served):
    given = message()
    given.parameters["tenant"].string_param = "a"
    given.parameters["min_accuracy"].SetInParent()
    given.parameters["triton_enable_empty_final_response"].bool_param = True
    given.inputs[0].parameters["content_type"].string_param = "np"
    given.inputs[0].parameters["binary_data_size"].int64_param = len(given.raw_input_contents[0])
    given.outputs.add(name="y").parameters["own"].int64_param = 1
    with grpc.insecure_channel(served.grpc) as channel:
        for _ in range(2):
            # The second one is known by its bytes.
            assert pb.ModelInferResponse.FromString(call(channel, given)).outputs[0].name == "y"
        given.inputs[0].parameters["binary_data_size"].int64_param = 3
        error = refused(channel, given)
    assert error.code() is CODE.INVALID_ARGUMENT
    assert "inputs.x.parameters.binary_data_size: is 3, its data has 16 bytes" in error.details()


def test_each_answer_of_a_stream_is_marked_as_the_final_one(served):
    asked = [message().SerializeToString(), message(model="nothing").SerializeToString()]
    with grpc.insecure_channel(served.grpc) as channel:
        stream = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter(asked), metadata=KEYED, timeout=60)
        found = [pb.ModelStreamInferResponse.FromString(one) for one in stream]
    assert [one.error_message[:15] for one in found] == ["", "model 'nothing'"]
    assert all(one.infer_response.parameters["triton_final_response"].bool_param for one in found)
