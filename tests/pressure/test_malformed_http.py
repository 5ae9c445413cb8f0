"""Malformed HTTP is refused, and its connection is closed.

Nothing in it is taken for another request.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.gateway.conftest import AUTH

from .wire import Client, parse, post, request

ONE = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
INFER = b"POST /v2/models/app/infer HTTP/1.1\r\nhost: a\r\nauthorization: " + AUTH["Authorization"].encode() + b"\r\n"
CHUNKED = INFER + b"transfer-encoding: chunked\r\n\r\n"
#: a request that must not be answered: it stands within another one
WITHIN = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"

MALFORMED = {
    "both a length and chunks": INFER + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + WITHIN,
    "both chunks and a length": INFER + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + WITHIN,
    "two lengths that differ": INFER + b"content-length: 4\r\ncontent-length: 9\r\n\r\n{}{}" + WITHIN,
    "a list of lengths": INFER + b"content-length: 4, 4\r\n\r\n{}{}" + WITHIN,
    "a length with a sign": INFER + b"content-length: +4\r\n\r\n{}{}" + WITHIN,
    "a negative length": INFER + b"content-length: -1\r\n\r\n{}{}" + WITHIN,
    "no number in the length": INFER + b"content-length: \r\n\r\n" + WITHIN,
    "a length beyond any number": INFER + b"content-length: 99999999999999999999999\r\n\r\n" + WITHIN,
    "an encoding that hides the length": INFER + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + WITHIN,
    "chunks not at the end": INFER + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + WITHIN,
    "a chunk whose size is no number": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk of a negative size": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk's size with a prefix": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk's size beyond any number": CHUNKED + b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk that is longer than it says": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk without its end": CHUNKED + b"2\r\n{}0\r\n\r\n" + WITHIN,
    "lines without carriage returns in chunks": CHUNKED + b"2\n{}\n0\n\n" + WITHIN,
    "lines without carriage returns": b"GET /health HTTP/1.1\nhost: a\n\n",
    "a space before the colon": INFER + b"content-length : 4\r\n\r\n{}{}" + WITHIN,
    "a header without a colon": INFER + b"content-length 4\r\n\r\n{}{}" + WITHIN,
    "a header that goes on in the next line": INFER + b"content-length: 2\r\n 2\r\n\r\n" + WITHIN,
    "a header within a header": INFER + b"x: 1\rcontent-length: 4\r\n\r\n{}{}" + WITHIN,
    "a zero byte": INFER + b"x: a\0b\r\n\r\n" + WITHIN,
    "a name that is not ASCII": INFER + b"x\xff: a\r\n\r\n" + WITHIN,
    "a control character in the path": b"GET /hea\x01lth HTTP/1.1\r\nhost: a\r\n\r\n",
    "HTTP/2 that nobody agreed on": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64,
    "TLS": bytes.fromhex("16030102000100") + b"\x01\xfc\x03\x03" + b"\0" * 64,
}


def replies(client: Client) -> list[tuple[int, dict[str, str], bytes]]:
    found, rest = [], client.rest()
    while rest:
        head, rest = rest.split(b"\r\n\r\n", 1)
        status, headers = parse(head)
        size = int(headers["content-length"])
        found.append((status, headers, rest[:size]))
        rest = rest[size:]
    return found


@pytest.mark.parametrize("kind", MALFORMED)
def test_it_is_refused_once_and_the_connection_is_closed(stack, kind):
    with Client(stack.gateway.port) as client:
        client.send(MALFORMED[kind])
        ((status, headers, body),) = replies(client)
    own = kind == "an encoding that hides the length"
    assert status == (501 if own else 400)
    assert headers["connection"] == "close"
    assert ("only 'chunked' is supported" if own else "not a valid HTTP request") in json.loads(body)["error"]


HUGE = {
    "path": (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 431),
    "path without an end": (b"GET /" + b"x" * 300_000, 431),
    "headers, each of them small": (INFER + b"".join(b"h%d: x\r\n" % i for i in range(9000)) + b"\r\n", 431),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\nh: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    "chunk": (CHUNKED + b"fffffff\r\n" + b"x" * (17 * 1024 * 1024), 413),
    "body in many chunks": (CHUNKED + (b"40000\r\n" + b"x" * 0x40000 + b"\r\n") * 68, 413),
    "body as its length says": (INFER + b"content-length: 99999999\r\n\r\n", 413),
}


@pytest.mark.parametrize("kind", HUGE)
def test_what_is_too_large_is_refused_as_soon_as_that_is_known(served, kind):
    data, status = HUGE[kind]
    with served.bystanders(), Client(served.gateway.port) as client:
        client.send(data)
        ((found, headers, body),) = replies(client)
    assert found == status
    assert headers["connection"] == "close"
    assert "at most" in json.loads(body)["error"]


def test_all_of_it_at_once_disturbs_nobody(served):
    with served.bystanders(least=60):
        for _ in range(10):
            clients = [Client(served.gateway.port) for _ in MALFORMED]
            for client, data in zip(clients, MALFORMED.values(), strict=True):
                client.send(data)
            for client in clients:
                client.vanish(reset=True)


def test_a_request_without_a_body_is_refused_and_the_next_one_is_served(served):
    with Client(served.gateway.port) as client:
        client.send(INFER + b"\r\n" + request("app", ONE))
        status, _, body = client.answer()
        assert status == 400
        assert "body: is empty" in json.loads(body)["error"]
        assert client.answer()[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/v2/models/a%0d%0aset-cookie:%20a=b/infer", "/v2/models/app/versions/v%0d%0ax-injected:%20a/infer", "/a%0ab"],
)
def test_nothing_that_a_client_sends_becomes_a_header(served, path):
    with Client(served.gateway.port) as client:
        client.send(post(path, b"{}", **AUTH))
        status, headers, body = client.answer()
    assert status == 404
    assert headers.keys() - {"connection"} == {"date", "content-type", "content-length"}
    assert json.loads(body)["error"]


def test_an_id_with_line_ends_comes_back_as_it_went(served):
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    body = json.dumps({"id": "a\r\nx-injected: b\r\n\r\n", "inputs": [tensor]}).encode()
    with Client(served.gateway.port) as client:
        client.send(post("/v2/models/app/infer", body, **AUTH))
        status, headers, content = client.answer()
    assert (status, json.loads(content)["id"]) == (200, "a\r\nx-injected: b\r\n\r\n")
    assert "x-injected" not in headers


def test_trailers_are_no_headers(stack):
    """Trailers after the body cannot admit a request, nor change how it is read."""
    described = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'
    keyless = b"POST /v2/models/app/infer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    late_key = b"authorization: " + AUTH["Authorization"].encode() + b"\r\n"
    chunk = b"%x\r\n" % len(described) + described + b"\r\n0\r\n"
    with Client(stack.gateway.port) as client:
        client.send(keyless + chunk + late_key + b"\r\n")
        assert client.answer()[0] == 401
    with Client(stack.gateway.port) as client:
        client.send(CHUNKED + chunk + b"inference-header-content-length: 3\r\ncontent-encoding: gzip\r\n\r\n")
        assert client.answer()[0] == 200
