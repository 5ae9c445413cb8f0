"""Whole V2 bodies are parsed as the protocol says. Anything else is refused in words."""

from __future__ import annotations

import json
import math
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol.specs import Signature, TensorSpec
from workers.v2 import http
from workers.v2.query import V2Error, V2Query

TWO = Signature(
    (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "BYTES", (-1,))),
    (TensorSpec("p", "FP32", (-1, 2)), TensorSpec("q", "BYTES", (-1,))),
)


def binary_body(a: np.ndarray, b: list[bytes], **request) -> tuple[bytes, int]:
    packed = b"".join(struct.pack("<I", len(t)) + t for t in b)
    # In another order than the signature's, which a client is free to use.
    inputs = [
        {"name": "b", "datatype": "BYTES", "shape": [len(b)], "parameters": {"binary_data_size": len(packed)}},
        {"name": "a", "datatype": "FP32", "shape": list(a.shape), "parameters": {"binary_data_size": a.nbytes}},
    ]
    text = json.dumps({"inputs": inputs, **request}).encode()
    return text + packed + a.tobytes(), len(text)


@given(
    st.lists(st.tuples(st.floats(width=32), st.floats(width=32), st.text(max_size=9)), min_size=1, max_size=5),
    st.text(max_size=20),
)
def test_binary_tensors_arrive_and_leave_byte_for_byte(rows, id):
    a = np.array([(x, y) for x, y, _ in rows], np.float32)
    body, length = binary_body(a, [t.encode() for *_, t in rows], id=id, parameters={"binary_data_output": True})
    query = http.parse(body, length, TWO, 64)
    assert (query.id, query.terms.rows) == (id, len(rows))
    assert [h.name for h in query.terms.shape.inputs] == ["a", "b"]
    assert bytes(query.parts[0]) == a.tobytes()
    outputs = [msgspec.structs.replace(h, name=n) for h, n in zip(query.terms.shape.inputs, ("p", "q"), strict=True)]
    parts, header_length = http.render(query, "m", "v", {}, outputs, query.parts)
    whole = b"".join(parts)
    described = json.loads(whole[:header_length])
    assert described.get("id", "") == id
    sizes = [o["parameters"]["binary_data_size"] for o in described["outputs"]]
    assert whole[header_length:] == b"".join(bytes(p) for p in query.parts)
    assert sizes == [len(p) for p in query.parts]


@given(st.lists(st.tuples(st.floats(-(2.0**100), 2.0**100, width=32), st.text(max_size=9)), min_size=1, max_size=5))
def test_json_tensors_come_back_as_they_went(rows):
    inputs = [
        {"name": "a", "datatype": "FP32", "shape": [len(rows), 2], "data": [[x, -x] for x, _ in rows]},
        {"name": "b", "datatype": "BYTES", "shape": [len(rows)], "data": [t for _, t in rows]},
    ]
    query = http.parse(json.dumps({"inputs": inputs}).encode(), None, TWO, 64)
    outputs = [msgspec.structs.replace(h, name=n) for h, n in zip(query.terms.shape.inputs, ("p", "q"), strict=True)]
    parts, header_length = http.render(query, "m", "v", {}, outputs, query.parts)
    assert header_length is None
    p, q = json.loads(b"".join(parts))["outputs"]
    assert p["data"] == [value for x, _ in rows for value in (x, -x)]
    assert q["data"] == [t for _, t in rows]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b"]) | json_values,
        "datatype": st.sampled_from(["FP32", "BYTES"]) | json_values,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | json_values,
        "data": json_values,
        "parameters": st.dictionaries(st.just("binary_data_size"), st.integers(-1, 9)) | json_values,
    },
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "inputs": st.lists(inputs, max_size=3) | json_values,
        "outputs": json_values,
        "parameters": json_values,
    },
)


@given(requests.map(lambda r: json.dumps(r).encode()) | st.binary(max_size=60), st.none() | st.integers(0, 80))
def test_whatever_arrives_is_a_query_or_a_clear_error(body, header_length):
    try:
        http.parse(body, header_length, TWO, 64)
    except V2Error as error:
        assert str(error)


def test_bf16_passes_as_binary_data():
    signature = Signature((TensorSpec("h", "BF16", (-1,)),), (TensorSpec("h", "BF16", (-1,)),))
    described = {"name": "h", "datatype": "BF16", "shape": [2], "parameters": {"binary_data_size": 4}}
    text = json.dumps({"inputs": [described], "parameters": {"binary_data_output": True}}).encode()
    query = http.parse(text + b"\x80\x3f\x00\x40", len(text), signature, 64)
    assert bytes(query.parts[0]) == b"\x80\x3f\x00\x40"
    parts, length = http.render(query, "m", "v", {}, query.terms.shape.inputs, query.parts)
    assert b"".join(parts)[length:] == b"\x80\x3f\x00\x40"


def test_bf16_without_binary_data_is_refused_before_it_runs():
    signature = Signature((TensorSpec("h", "BF16", (-1,)),), (TensorSpec("g", "BF16", (-1,)),))
    described = {"name": "h", "datatype": "BF16", "shape": [1], "parameters": {"binary_data_size": 2}}
    text = json.dumps({"inputs": [described]}).encode()
    with pytest.raises(V2Error, match=r"outputs\.g: BF16 has no JSON form; ask for binary data"):
        http.parse(text + b"\x80\x3f", len(text), signature, 64)
    given = json.dumps({"inputs": [{"name": "h", "datatype": "BF16", "shape": [1], "data": [1.0]}]}).encode()
    with pytest.raises(V2Error, match=r"inputs\.h\.data: BF16 has no JSON form"):
        http.parse(given, None, signature, 64)


TOKENS = Signature((TensorSpec("ids", "INT64", (-1, -1), most=512),), (TensorSpec("y", "FP32", (-1, 2)),))


def tokens(shape: list[int]) -> V2Query:
    described = {"name": "ids", "datatype": "INT64", "shape": shape, "data": [1] * max(0, math.prod(shape))}
    return http.parse(json.dumps({"inputs": [described]}).encode(), None, TOKENS, 64)


def test_an_open_dimension_may_be_empty_but_rows_may_not():
    assert tokens([3, 0]).terms.shape.inputs[0].shape == (3, 0)
    with pytest.raises(V2Error, match=r"inputs\.ids\.shape\[0\]: is 0, must be at least 1: a query has one row"):
        tokens([0, 3])
    with pytest.raises(V2Error, match=r"inputs\.ids\.shape\[1\]: is -1, must be 0 or more"):
        tokens([1, -1])


def test_an_open_dimension_may_not_pass_the_largest_declared_size():
    assert tokens([1, 512]).terms.rows == 1
    with pytest.raises(V2Error, match=r"inputs\.ids\.shape\[1\]: is 513, must be at most 512"):
        tokens([1, 513])


def test_text_that_is_not_utf8_is_refused_by_input_and_element():
    body, length = binary_body(np.zeros((3, 2), np.float32), ["ü".encode(), b"", b"a\xffb"])
    with pytest.raises(V2Error, match=r"inputs\.b\.data: element 2 of BYTES is not UTF-8"):
        http.parse(body, length, TWO, 64)


def test_an_output_that_the_model_did_not_give_is_an_error():
    body, length = binary_body(np.zeros((1, 2), np.float32), [b"t"])
    query = http.parse(body, length, TWO, 64)
    with pytest.raises(V2Error, match=r"outputs\.p: the model did not give it"):
        http.render(query, "m", "v", {}, (), ())


def test_the_tightest_of_two_budgets_counts():
    body, length = binary_body(np.zeros((1, 2), np.float32), [b"t"], parameters={"latency_ms": 50, "timeout": 20_000})
    assert http.parse(body, length, TWO, 64).latency_s == pytest.approx(0.02)
