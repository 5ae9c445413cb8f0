"""Each kind of bad query gets an error that names the field and the limit."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

from workers.secret_kinds import new_secret

from .conftest import AUTH, ROWS

PATH = "/v2/models/numbers/infer"


def tensor(**changes) -> dict:
    given = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]} | changes
    return {name: value for name, value in given.items() if value is not None}


def request(*tensors: dict, **more) -> dict:
    return {"inputs": list(tensors or (tensor(),)), **more}


BAD = {
    "no body": (b"", "body: is empty"),
    "not JSON": (b"{inputs", "not valid JSON"),
    "not an object": (b"[]", "Expected `object`"),
    "not UTF-8": (b'{"id": "\xff", "inputs": []}', "body: "),
    "no inputs": ({"id": "1"}, "missing required field `inputs`"),
    "empty inputs": ({"inputs": []}, "inputs: x missing"),
    "id is a number": (request(id=1), "$.id"),
    "id is long": (request(id="i" * 1025), "id: at most 1024"),
    "unknown input": (request(tensor(name="z")), "'z' is not an input; the application takes x"),
    "input given twice": (request(tensor(), tensor()), "inputs.x: is given twice"),
    "wrong datatype": (request(tensor(datatype="FP64")), "inputs.x.datatype: is FP64, must be FP32"),
    "no such datatype": (request(tensor(datatype="FLOAT")), "'FLOAT' is not a V2 datatype"),
    "wrong rank": (request(tensor(shape=[4])), "has 1 dimensions, must have 2"),
    "wrong dimension": (request(tensor(shape=[1, 5])), "inputs.x.shape[1]: is 5, must be 4"),
    "no rows": (request(tensor(shape=[0, 4], data=[])), "inputs.x.shape[0]: is 0, must be at least 1"),
    "negative dimension": (request(tensor(shape=[-1, 4])), "is -1, must be at least 1: a query has one row or more"),
    "shape of text": (request(tensor(shape=["1", 4])), "$.inputs[0].shape[0]"),
    "too many rows": (request(tensor(shape=[ROWS + 1, 4], data=[0] * 4 * (ROWS + 1))), f"must be 1 to {ROWS}"),
    "too little data": (request(tensor(data=[1, 2])), "has 2 elements; shape [1, 4] takes 4"),
    "ragged data": (request(tensor(shape=[2, 4], data=[[1, 2, 3, 4], [1]])), "each list of level 1 takes 4"),
    "text among numbers": (request(tensor(data=[1, 2, 3, "4"])), "must be numbers; it has strings"),
    "out of range": (request(tensor(data=[1, 2, 3, 1e39])), "inputs.x.data: of FP32 must be from -3.4"),
    "no data": (request(tensor(data=None)), "neither data nor parameters.binary_data_size"),
    "another size than the data's": (
        request(tensor(parameters={"binary_data_size": 15})),
        "inputs.x.parameters.binary_data_size: is 15, its data has 16 bytes",
    ),
    "binary data missing": (
        request(tensor(data=None, parameters={"binary_data_size": 16})),
        "binary_data_size: is 16, 0 bytes are left",
    ),
    "binary size is text": (
        request(tensor(data=None, parameters={"binary_data_size": "16"})),
        "must be a whole number, 0 or more",
    ),
    "shared memory": (
        request(tensor(data=None, parameters={"shared_memory_region": "r"})),
        "shared_memory_region: not supported",
    ),
    "unknown output": (request(outputs=[{"name": "z"}]), "'z' is not an output; the application has y, n"),
    "output named twice": (request(outputs=[{"name": "y"}, {"name": "y"}]), "'y' is named twice"),
    "classification": (
        request(outputs=[{"name": "y", "parameters": {"classification": 3}}]),
        "outputs.y.parameters.classification: not supported",
    ),
    "binary_data is a number": (
        request(outputs=[{"name": "y", "parameters": {"binary_data": 1}}]),
        "binary_data: must be true or false, not 1",
    ),
    "final response is a number": (
        request(parameters={"triton_enable_empty_final_response": 2}),
        "parameters.triton_enable_empty_final_response: must be true or false, not 2",
    ),
    "a sequence": (request(parameters={"sequence_id": 1}), "sequences (stateful models) are not supported"),
    "latency is text": (request(parameters={"latency_ms": "10"}), "parameters.latency_ms: must be a number, not '10'"),
    "latency is zero": (request(parameters={"latency_ms": 0}), "latency_ms: must be a finite number above 0"),
    "latency is true": (request(parameters={"latency_ms": True}), "parameters.latency_ms: must be a number"),
    "accuracy above 100": (request(parameters={"min_accuracy": 101}), "min_accuracy: must be from 0 to 100, not 101"),
    "parameters are a list": (request(parameters=[1]), "$.parameters"),
    "deeply nested": (b'{"inputs":' + b"[" * 60_000, "body: "),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_body_is_refused(served, kind):
    body, words = BAD[kind]
    response = served.post(PATH, body)
    assert response.status_code == 400
    assert words in response.json()["error"]


BINARY = json.dumps(request(tensor(data=None, parameters={"binary_data_size": 16}))).encode()
LENGTH = "Inference-Header-Content-Length"


@pytest.mark.parametrize(
    ("headers", "body", "status", "words"),
    [
        ({LENGTH: "x"}, BINARY, 400, "must be a whole number of bytes"),
        ({LENGTH: "-1"}, BINARY, 400, "must be a whole number of bytes"),
        ({LENGTH: "99999"}, BINARY, 400, f"{LENGTH}: is 99999, the body has"),
        ({LENGTH: "0"}, BINARY, 400, "body: is empty"),
        ({LENGTH: str(len(BINARY))}, BINARY + b"\0" * 12, 400, "is 16, 12 bytes are left"),
        ({LENGTH: str(len(BINARY))}, BINARY + b"\0" * 20, 400, "4 bytes after the last input"),
        ({LENGTH: str(len(BINARY) - 1)}, BINARY + b"\0" * 16, 400, "not valid JSON"),
        ({"Content-Encoding": "br"}, b"x", 415, "'br' is not supported; gzip, deflate"),
        ({"Content-Encoding": "gzip"}, b"plain", 400, "not valid gzip"),
        ({"Content-Encoding": "gzip"}, gzip.compress(b"{}", mtime=0)[:-4], 400, "not valid gzip: cut off"),
        ({"Content-Encoding": "deflate"}, b"plain", 400, "not valid deflate"),
        (
            {"Content-Encoding": "gzip"},
            gzip.compress(b" " * 2_000_000, mtime=0),
            413,
            "at most 81920 bytes once decompressed",
        ),
        ({}, b" " * 1_100_000, 413, "body: at most 1048576 bytes"),
        ({"Authorization": ""}, b"{}", 401, "must be 'Bearer KEY'"),
        ({"Authorization": "Basic abc"}, b"{}", 401, "must be 'Bearer KEY'"),
        ({"Authorization": "Bearer wrong"}, b"{}", 401, "this API key is not known"),
        (
            {"Authorization": f"Bearer {new_secret('api_token')}"},
            b"{}",
            401,
            "this is an API token, which is for REST (/api/v1/); queries take an API key",
        ),
    ],
)
def test_bad_headers_are_refused(served, headers, body, status, words):
    response = served.post(PATH, body, **headers)
    assert response.status_code == status
    assert words in response.json()["error"]
    if status == 401:
        assert response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/v2/models/nothing/infer", 404, "model 'nothing': no such application"),
        ("POST", "/v2/models/numbers/versions/huge/infer", 404, "no such variant of numbers; it has big"),
        ("POST", "/v2/models/numbers/versions/infer", 405, "allowed: GET, HEAD"),
        ("POST", "/v2/models/numbers/explain", 404, "not found"),
        ("POST", "/v2/models//infer", 404, "no such application"),
        ("POST", "/v2/models/%ff/infer", 400, "percent-encoded UTF-8"),
        ("GET", "/", 404, "not found"),
        ("GET", "/v3/models", 404, "not found"),
        ("GET", "/v2/models/numbers/infer", 405, "method GET: not allowed here; allowed: POST"),
        ("DELETE", "/v2/models/numbers", 405, "allowed: GET, HEAD"),
        ("POST", "/v2/health/live", 405, "allowed: GET, HEAD"),
        ("GET", "/v2/models/numbers/versions/huge", 404, "no such variant"),
        ("GET", "/v2/models/nothing/stats", 404, "no such application"),
    ],
)
def test_bad_paths_and_methods_are_refused(served, method, path, status, words):
    response = served.http.request(method, path, headers=AUTH)
    assert response.status_code == status
    assert words in response.json()["error"]
    if status == 405:
        assert response.headers["Allow"]


@pytest.mark.parametrize("path", ["/v2", "/v2/models/numbers", "/v2/models/numbers/ready", "/v2/models/stats", "/v2/x"])
def test_everything_but_health_and_metrics_needs_a_key(served, path):
    response = served.http.get(path)
    assert response.status_code == 401
    assert "Authorization: missing" in response.json()["error"]


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/health", "/metrics"])
def test_health_and_metrics_need_no_key(served, path):
    assert served.http.get(path).status_code == 200


@pytest.mark.parametrize("stranger", [{"Host": "evil.example"}, {"X-Forwarded-For": "192.0.2.1"}])
def test_operating_figures_are_not_for_strangers(served, stranger):
    # Neither do web pages in browsers on this box, nor those whom a proxy here lets pass.
    assert served.http.get("/health", headers=stranger).json() == {"status": "ready"}
    refused = served.http.get("/metrics", headers=stranger)
    assert refused.status_code == 403 and "NEREUS_METRICS_FROM" in refused.json()["error"]
    assert served.http.get("/v2/health/ready", headers=stranger).status_code == 200
    assert served.http.get("/metrics").text.count("nereus_") > 10


def raw(served, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        connection.sendall(data)
        received = b""
        while True:
            part = connection.recv(65536)
            if not part:
                return received
            received += part


def test_a_client_that_asks_first_is_asked_to_continue(served):
    body = json.dumps(request()).encode()
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: %s\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), 60) as connection:
        connection.sendall(head % (PATH.encode(), AUTH["Authorization"].encode(), len(body)))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_results_that_json_cannot_say_are_a_clear_error_and_no_failure(served):
    def ended() -> tuple[int, int]:
        (model,) = served.http.get("/v2/models/nan/stats", headers=AUTH).json()["model_stats"]
        return tuple(model["inference_stats"][how]["count"] for how in ("success", "fail"))

    before = ended()
    response = served.infer([[1, 2, 3, 4]], "nan")
    assert response.status_code == 422
    assert "outputs.y: has NaN or infinity, which have no JSON form; ask for binary data" in response.json()["error"]
    assert 'non_finite: "null"' in response.json()["error"]
    assert ended() == (before[0] + 1, before[1])
    body = request(outputs=[{"name": "n"}, {"name": "y", "parameters": {"binary_data": True}}])
    response = served.post("/v2/models/nan/infer", body)
    assert response.status_code == 200
    assert response.content.endswith(b"\0\0\xc0\x7f" * 4)


def test_still_serves_after_all_that(served):
    assert served.infer([[1, 2, 3, 4]]).json()["outputs"][0]["data"] == [2, 4, 6, 8]
    errors = [line for line in served.log if '"level": "error"' in line]
    # There is no control plane here, and the gateway says so.
    assert all("link_refused" in line for line in errors)
