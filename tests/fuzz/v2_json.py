"""V2 queries over HTTP, JSON with binary tensors behind it.

Each is valid, or a V2Error, and the same however it is read.
"""

from __future__ import annotations

import json

import msgspec

from tests.gateway.conftest import EVERY
from workers.gateway.parser_process import ParseOrder, parse
from workers.protocol.datatypes import DATATYPES
from workers.protocol.specs import Signature, TensorSpec
from workers.v2 import http
from workers.v2.http_memory import HttpReader
from workers.v2.query import V2Error, V2Query

TWO = Signature((TensorSpec("x", "FP32", (-1, 2)), TensorSpec("t", "BYTES", (-1, -1))), EVERY.outputs[:2])
FIXED = Signature((TensorSpec("x", "FP32", (-1, 2)), TensorSpec("y", "INT8", (-1, 2))), EVERY.outputs[:2])
SIGNATURES = {"two": TWO, "fixed": FIXED, "every": EVERY}
PACKED = msgspec.msgpack.encode(SIGNATURES)
ROWS = 8


def seeds() -> list[bytes]:
    found = []
    values = {"BOOL": [True, False], "BYTES": ["a", "\u00e9"], "BF16": [1, 2]}
    for place, signature in enumerate(SIGNATURES.values()):
        inputs = [
            {"name": one.name, "datatype": one.datatype, "shape": [1, 2], "data": values.get(one.datatype, [1, 2])}
            for one in signature.inputs
        ]
        whole = {"id": "a", "parameters": {"latency_ms": 5, "min_accuracy": 1.5}, "inputs": inputs}
        found.append(bytes([place, 0]) + json.dumps(whole).encode())
    outputs = [{"name": "out_bool", "parameters": {"binary_data": True}}]
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}},
        {"name": "y", "datatype": "INT8", "shape": [1, 2], "parameters": {"binary_data_size": 2}},
    ]
    header = json.dumps({"id": "b", "inputs": inputs, "outputs": outputs}, separators=(",", ":")).encode()
    found.append(bytes([1, len(header) % 256]) + header + bytes(10))
    left_out = {"id": None, "parameters": {"own": [1], "timeout": None}, "outputs": None, "inputs": inputs}
    inputs[0] |= {"data": None, "parameters": {"binary_data_size": 8, "content_type": "np"}}
    header = json.dumps(left_out).encode()
    found.append(bytes([1, len(header) % 256]) + header + bytes(10))
    nested = {
        "inputs": [{"name": d.lower(), "datatype": d, "shape": [2, 2], "data": [[1, 0], [0, 1]]} for d in DATATYPES]
    }
    found.append(bytes([2, 0]) + json.dumps(nested).encode())
    return found


def outcome(read) -> tuple | str:
    try:
        query: V2Query = read()
    except V2Error as error:
        assert 0 < len(str(error)) < 10_000
        return "error"
    assert 1 <= query.terms.rows <= ROWS
    assert sum(len(part) for part in query.parts) == query.terms.nbytes
    terms = query.terms
    return (
        query.id,
        [bytes(part) for part in query.parts],
        terms.shape,
        terms.outputs,
        terms.latency_s,
        terms.min_accuracy,
    )


def check(data: bytes) -> None:
    if len(data) < 2:
        return
    name = list(SIGNATURES)[data[0] % len(SIGNATURES)]
    signature, body = SIGNATURES[name], data[2:]
    #: 0: the whole body is JSON; else the length's last eight bits, the rest being the body's
    length = None if not data[1] else (len(body) & ~0xFF) + data[1]
    expected = outcome(lambda: http.parse(body, length, signature, ROWS))
    reader = HttpReader(signature, ROWS)
    for given in (body, memoryview(body)):
        assert outcome(lambda given=given: reader.parse(given, length)) == expected
    parsed = parse(ParseOrder(body, b"identity", len(body), ROWS, name, length, PACKED))
    assert (parsed.error != "") == (expected == "error")
    if expected != "error":
        assert outcome(lambda: parsed.query) == expected
