"""Queries spelled like earlier ones mean what they would mean alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol.frames import TensorHeader
from workers.protocol.specs import Signature, TensorSpec
from workers.v2 import http
from workers.v2.http_memory import HttpReader
from workers.v2.http_template import HttpTemplate
from workers.v2.query import LONGEST, MAX_ID, MOST, V2Error

TWO = Signature(
    (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT16", (-1, -1))),
    (TensorSpec("p", "FP32", (-1, 2)), TensorSpec("q", "BYTES", (-1,))),
)
FLAGS = Signature((TensorSpec("f", "BOOL", (-1,)),), (TensorSpec("p", "FP32", (-1, 2)),))
SIZES = {"a": 8, "b": 6}


def tensor(name: str, rows: int, width: int, size: int | None) -> dict:
    described = {"name": name, "datatype": {"a": "FP32", "b": "INT16"}[name], "shape": [rows, width]}
    if size is None:
        return described | {"data": [1] * (rows * width)}
    return described | {"parameters": {"binary_data_size": size}}


#: requests of which many are alike, some are wrong, and some have data in their JSON
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["", "one", "two", "é", "x" * (MAX_ID + 1)]),
        "parameters": st.sampled_from([{}, {"latency_ms": 50}, {"min_accuracy": 90}, {"latency_ms": -1}, {"zzz": 1}]),
        "outputs": st.sampled_from(
            [[{"name": "p"}], [{"name": "q", "parameters": {"binary_data": True}}], [{"name": "n"}]]
        ),
    },
)
BODIES = st.builds(
    lambda request, order, rows, data, more: (
        request
        | {"inputs": [tensor(n, rows, SIZES[n] // (4 if n == "a" else 2), data[n] and SIZES[n] * rows) for n in order]},
        bytes(max(0, sum(SIZES[n] * rows for n in order if data[n]) + more)),
    ),
    REQUESTS,
    st.sampled_from([["a", "b"], ["b", "a"], ["a"]]),
    st.integers(1, 3),
    st.sampled_from([{"a": True, "b": True}, {"a": True, "b": True}, {"a": True, "b": None}]),
    st.sampled_from([0, 0, 0, 1, -1]),
)


def outcome(parse) -> object:
    try:
        query = parse()
    except V2Error as error:
        return str(error)
    terms = query.terms
    return (query.id, query.latency_s, [bytes(p) for p in query.parts], terms.shape, terms.outputs, terms.min_accuracy)


@given(st.lists(BODIES, min_size=1, max_size=12))
def test_each_is_read_as_if_it_were_the_first(bodies):
    reader = HttpReader(TWO, 64)
    for request, data in bodies:
        text = json.dumps(request).encode()
        for body in (text + data, memoryview(text + data)):
            expected = outcome(lambda body=body, text=text: http.parse(body, len(text), TWO, 64))
            assert outcome(lambda body=body, text=text: reader.parse(body, len(text))) == expected


#: pieces of a request's JSON of which some are wrong, some have an id that also stands elsewhere, and keys may repeat
PIECES = st.lists(
    st.sampled_from(
        [
            '"inputs":' + json.dumps([tensor("a", 1, 2, 8), tensor("b", 1, 3, 6)]),
            '"inputs":' + json.dumps([tensor("b", 1, 3, 6), tensor("a", 1, 2, 8)]),
            '"inputs":5',
            '"inputs":[]',
            '"id":"a"',
            '"id" : ":"',
            '"id":": "',
            '"id":"\\u0061"',
            '"id":"inputs"',
            '"id":""',
            '"id":5',
            '"i\\u0064":"b"',
            '"parameters":{"latency_ms":50}',
            '"parameters":{"latency_ms":50,"latency_ms":"x"}',
            '"parameters":"x"',
            '"outputs":[{"name":"p"}]',
            '"a":"a"',
            '"x":{"id":"a"}',
        ]
    ),
    max_size=5,
)


@given(st.lists(PIECES, min_size=1, max_size=12))
def test_keys_that_are_given_twice_are_judged_the_same_each_time(requests):
    reader = HttpReader(TWO, 64)
    for pieces in requests:
        for text in (("{" + ",".join(one) + "}").encode() for one in (pieces, pieces, pieces[::-1])):
            body = text + bytes(14)
            expected = outcome(lambda body=body, text=text: http.parse(body, len(text), TWO, 64))
            assert outcome(lambda body=body, text=text: reader.parse(body, len(text))) == expected


@pytest.mark.parametrize("name", ["", '"id":"one",'])
def test_a_first_value_that_is_wrong_is_refused_however_well_the_last_one_is_known(name):
    reader = HttpReader(TWO, 64)
    inputs = json.dumps([tensor("a", 1, 2, 8), tensor("b", 1, 3, 6)])
    right = f'{{{name}"inputs":{inputs}}}'.encode()
    wrong = f'{{{name}"inputs":5,"inputs":{inputs}}}'.encode()
    for _ in range(2):
        with pytest.raises(V2Error, match="inputs"):
            reader.parse(wrong + bytes(14), len(wrong))
        assert reader.parse(right + bytes(14), len(right)).terms.rows == 1


@pytest.mark.parametrize("broken", [b'"\xff"', b'"\\q"', b'"a\nb"', b"5", b'"' + b"x" * 1025 + b'"'])
def test_an_id_that_is_wrong_is_refused_however_well_the_rest_is_known(broken):
    reader = HttpReader(TWO, 64)
    around = b'{"id":', b',"inputs":%s}' % json.dumps([tensor("a", 1, 2, 8), tensor("b", 1, 3, 6)]).encode()
    for name in (b'"a"', b'"b"'):
        text = name.join(around)
        assert reader.parse(text + bytes(14), len(text)).id == json.loads(name)
    text = broken.join(around)
    with pytest.raises(V2Error):
        reader.parse(text + bytes(14), len(text))


def test_those_that_are_alike_share_their_terms_whatever_their_ids():
    reader = HttpReader(TWO, 64)
    inputs = [tensor("a", 1, 2, 8), tensor("b", 1, 3, 6)]
    texts = [json.dumps({"id": id, "inputs": inputs}).encode() for id in ("", "x", "y", "")]
    queries = [reader.parse(text + bytes([i] * 14), len(text)) for i, text in enumerate(texts)]
    assert [query.id for query in queries] == ["", "x", "y", ""]
    assert len({id(query.terms) for query in queries}) == 1
    assert [bytes(query.parts[1]) for query in queries] == [bytes([i] * 6) for i in range(4)]


def test_what_elements_hold_is_looked_at_each_time():
    reader = HttpReader(FLAGS, 64)
    described = {"name": "f", "datatype": "BOOL", "shape": [2], "parameters": {"binary_data_size": 2}}
    text = json.dumps({"inputs": [described]}).encode()
    assert bytes(reader.parse(text + b"\0\1", len(text)).parts[0]) == b"\0\1"
    with pytest.raises(V2Error, match="BOOL elements must be the bytes 0 or 1"):
        reader.parse(text + b"\0\2", len(text))


def test_who_never_spells_alike_fills_no_memory():
    reader = HttpReader(TWO, 64)
    for i in range(3 * MOST):
        inputs = [tensor("a", 1, 2, 8), tensor("b", 1, 3, 6)]
        text = json.dumps({"inputs": inputs, "parameters": {"latency_ms": i + 1}}).encode()
        assert reader.parse(text + bytes(14), len(text)).latency_s == (i + 1) / 1e3
        assert len(reader._known) <= MOST
    for i in range(3 * MOST):
        text = json.dumps({"id": "x", "inputs": inputs, "parameters": {"latency_ms": i + 1}}).encode()
        assert reader.parse(text + bytes(14), len(text)).latency_s == (i + 1) / 1e3
        assert len(reader._known) <= MOST
    long = json.dumps({"inputs": inputs, "id": "x" * 900}).encode() + b" " * LONGEST
    assert reader.parse(long + bytes(14), len(long)).id == "x" * 900
    assert all(len(key) <= LONGEST for key in reader._known)


# --- responses --------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["", "one", 'with "quotes" and é']),
    st.floats(0, 1e12, allow_nan=False),
    st.permutations(["p", "q"]),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_a_filled_template_is_the_response_that_would_be_rendered(id, number, order, wanted, rows):
    request = {
        "id": id,
        "inputs": [tensor("a", rows, 2, 8 * rows), tensor("b", rows, 3, 6 * rows)],
        "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in order[:wanted]],
    }
    text = json.dumps(request).encode()
    query = http.parse(text + bytes(14 * rows), len(text), TWO, 64)
    headers = (TensorHeader("p", "FP32", (rows, 2), 8 * rows), TensorHeader("q", "BYTES", (rows,), 6 * rows))
    parts = [b"p" * 8 * rows, b"\2\0\0\0qq" * rows]
    parameters = {"variant": "v", "accuracy": 97.5, "batch_size": 3, "queue_ms": round(number, 3), "model_ms": 2.5}
    rendered, length = http.render(query, "m", "v", parameters, headers, parts)
    assert HttpTemplate.fits(query.terms, headers)
    template = HttpTemplate(query.terms, "m", "v", parameters, ("queue_ms", "model_ms"), headers)
    head, _, body = template.fill(id, number, template.fill_batch((2.5,)), parts).partition(b"\r\n\r\n")
    given = dict(line.split(b": ") for line in head.split(b"\r\n"))
    assert int(given[b"content-length"]) == len(body)
    described = int(given[b"inference-header-content-length"])
    filled = json.loads(body[:described])
    expected = json.loads(rendered[0])
    assert filled["parameters"].pop("queue_ms") == pytest.approx(expected["parameters"].pop("queue_ms"), abs=1e-3)
    assert filled == expected
    assert list(filled["parameters"]) == list(expected["parameters"])
    assert body[described:] == b"".join(rendered[1:]) and length is not None


def test_there_is_no_template_where_an_output_is_wanted_as_json_or_missing():
    text = json.dumps({"inputs": [tensor("a", 1, 2, 8), tensor("b", 1, 3, 6)]}).encode()
    header = TensorHeader("p", "FP32", (1, 2), 8)
    assert not HttpTemplate.fits(http.parse(text + bytes(14), len(text), TWO, 64).terms, (header,))
    binary = json.loads(text) | {"parameters": {"binary_data_output": True}}
    text = json.dumps(binary).encode()
    assert not HttpTemplate.fits(http.parse(text + bytes(14), len(text), TWO, 64).terms, (header,))
