"""gRPC queries spelled like earlier ones mean what they would mean alone."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.protocol.frames import TensorHeader
from workers.protocol.specs import Signature, TensorSpec
from workers.v2 import grpc
from workers.v2 import inference_pb2 as pb
from workers.v2.grpc_memory import GrpcMemory
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.query import COPY_BYTES, LONGEST, MAX_ID, MOST, V2Error, V2Query

TWO = Signature(
    (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT16", (-1, -1))),
    (TensorSpec("p", "FP32", (-1, 2)), TensorSpec("q", "BYTES", (-1,))),
)
FLAGS = Signature((TensorSpec("f", "BOOL", (-1,)),), (TensorSpec("p", "FP32", (-1, 2)),))


def tensor(name: str, rows: int, typed: bool = False) -> dict:
    described = {"name": name, "datatype": {"a": "FP32", "b": "INT16"}[name], "shape": [rows, 2]}
    if typed:
        described["contents"] = {"fp32_contents" if name == "a" else "int_contents": [1] * (2 * rows)}
    return described


def spelled(
    model: str = "m",
    id: str = "",
    version: str = "",
    order: str = "ab",
    rows: int = 1,
    typed: bool = False,
    fill: int = 0,
) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name in order:
        message.inputs.add(**tensor(name, rows, typed))
        if not typed:
            message.raw_input_contents.append(bytes([fill]) * ((8 if name == "a" else 4) * rows))
    return message


#: messages of which many are alike, and what may be done to their bytes: some of it makes no messages of them
MESSAGES = st.builds(
    spelled,
    st.sampled_from(["m", "m", "", "é", "x" * 200]),
    st.sampled_from(["", "", "one", "two", "é" * 20, "x" * 127, "x" * 128, "x" * (MAX_ID + 1)]),
    st.sampled_from(["", "big"]),
    st.sampled_from(["ab", "ba", "a", "aa", "abb"]),
    st.integers(1, 3),
    st.sampled_from([False, False, False, True]),
    st.integers(0, 255),
)
CHANGES = st.sampled_from(
    [
        lambda data: data,
        lambda data: data,
        # an id behind all else, one more in front, one that is empty, one that is not UTF-8, one that is cut off
        lambda data: data + b"\x1a\x03end",
        lambda data: b"\x1a\x05first" + data,
        lambda data: b"\x1a\0" + data,
        lambda data: b"\x1a\x02\xff\xff" + data,
        lambda data: b"\x1a\x7f" + data,
        # unknown fields in front and behind: a number, bytes, a group
        lambda data: b"\xa0\x06\x01" + data,
        lambda data: data + b"\xa2\x06\x01x",
        lambda data: b"\xa3\x06\xa4\x06" + data,
        # another model's name behind, raw contents in front and in excess, and such of another wire type
        lambda data: data + b"\x0a\x05other",
        lambda data: b"\x3a\x08" + bytes(8) + data,
        lambda data: data + b"\x3a\0",
        lambda data: data + b"\x38\x01",
        # tags and lengths in more bytes than they need
        lambda data: b"\x8a\x00\x01m" + data,
        lambda data: b"\x0a\x81\x00m" + data,
        # cut off, and longer than it says
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"\xff",
        lambda data: data + bytes(1),
    ]
)
BYTES = st.builds(lambda message, change: change(message.SerializeToString()), MESSAGES, CHANGES)


def full(data: bytes) -> tuple[V2Query, str]:
    try:
        message = pb.ModelInferRequest.FromString(data)
    except DecodeError:
        raise V2Error("message: is not a valid inference.ModelInferRequest") from None
    contents = message.raw_input_contents
    return grpc.query(message, contents, TWO, 64), f"{message.model_name} {message.model_version}"


def outcome(read, data) -> object:
    try:
        query, owner = read(data)
    except V2Error as error:
        return str(error).partition(";")[0]
    terms = query.terms
    parts = [bytes(part) for part in query.parts]
    return query.id, query.latency_s, parts, terms.shape, terms.rows, terms.outputs, terms.nbytes, owner


def remembered(
    memory: GrpcMemory, fields: grpc.RequestFields, signature: Signature, owner: object, rows: int = 64
) -> tuple[V2Query, pb.ModelInferRequest]:
    message = fields.parse()
    query = grpc.query(message, fields.contents, signature, rows)
    memory.remember(fields, message, query, owner)
    return query, message


class Remembering:
    def __init__(self) -> None:
        self.memory = GrpcMemory()
        self.found = 0

    def read(self, data) -> tuple[V2Query, str]:
        fields = grpc.split(data)
        known = self.memory.find(fields)
        if known is not None:
            self.found += 1
            return known
        query, message = remembered(self.memory, fields, TWO, None)
        owner = f"{message.model_name} {message.model_version}"
        self.memory.remember(fields, message, query, owner)
        return query, owner


@settings(deadline=None)
@given(st.lists(BYTES, min_size=1, max_size=12))
def test_each_is_read_as_if_it_were_the_first(messages):
    remembering = Remembering()
    for data in messages * 2:
        for given_as in (data, memoryview(data)):
            assert outcome(remembering.read, given_as) == outcome(full, given_as)


@settings(deadline=None)
@given(
    st.lists(st.tuples(MESSAGES, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)), max_size=8)
)
def test_any_byte_may_be_another(messages):
    remembering = Remembering()
    for message, changes in messages:
        data = bytearray(message.SerializeToString())
        outcome(remembering.read, bytes(data))
        for place, byte in changes:
            data[place % len(data)] = byte
        assert outcome(remembering.read, bytes(data)) == outcome(full, bytes(data))


def test_those_that_are_alike_share_their_terms_whatever_their_ids():
    remembering = Remembering()
    queries = [
        remembering.read(spelled(id=id, fill=place).SerializeToString())[0]
        for place, id in enumerate(["", "x", "yy", ""])
    ]
    assert remembering.found == 3
    assert [query.id for query in queries] == ["", "x", "yy", ""]
    assert all(query.terms is queries[0].terms for query in queries)
    assert [bytes(query.parts[1]) for query in queries] == [bytes([place]) * 4 for place in range(4)]


def test_one_with_an_id_comes_first_and_is_known_without():
    remembering = Remembering()
    for id in ("first", "", "other"):
        assert remembering.read(spelled(id=id).SerializeToString())[0].id == id
    assert remembering.found == 2


def test_large_contents_are_not_copied():
    wide = Signature((TensorSpec("a", "FP32", (-1, 2)),), TWO.outputs)
    message = pb.ModelInferRequest(model_name="m", inputs=[{"name": "a", "datatype": "FP32", "shape": [600, 2]}])
    message.raw_input_contents.append(bytes(4800))
    assert len(message.raw_input_contents[0]) > COPY_BYTES
    memory, data = GrpcMemory(), message.SerializeToString()
    remembered(memory, grpc.split(data), wide, None, rows=600)
    query, _ = memory.find(grpc.split(data))
    assert isinstance(query.parts[0], memoryview)
    assert query.parts[0].obj is data


def test_what_bytes_can_get_wrong_is_looked_at_each_time():
    memory = GrpcMemory()
    message = pb.ModelInferRequest(inputs=[{"name": "f", "datatype": "BOOL", "shape": [1]}], raw_input_contents=[b"\1"])
    data = message.SerializeToString()
    remembered(memory, grpc.split(data), FLAGS, None)
    assert memory.find(grpc.split(data)) is None


def test_what_is_remembered_has_an_end():
    remembering = Remembering()
    for i in range(MOST + 10):
        remembering.read(spelled(model=f"m{i}").SerializeToString())
    assert len(remembering.memory._known) <= MOST
    long = spelled(model="x" * (LONGEST + 1)).SerializeToString()
    remembering.read(long)
    assert remembering.memory.find(grpc.split(long)) is None
    remembering.read(spelled(model="again").SerializeToString())
    assert remembering.memory.find(grpc.split(spelled(model="again", fill=7).SerializeToString())) is not None


# --- answers ----------------------------------------------------------------------------------------------------------

HEADERS = (
    TensorHeader("p", "FP32", (2, 2), 16),
    TensorHeader("q", "BYTES", (2,), 12),
    TensorHeader("z", "INT8", (0,), 0),
)
PARAMETERS = {"variant": "big", "accuracy": 95.5, "queue_ms": 0.0, "batch_size": 4, "model_ms": 0.0, "cold": True}


@settings(deadline=None)
@given(
    st.sampled_from([("p",), ("q",), ("q", "p"), ("p", "q", "z"), ()]),
    st.sampled_from(["", "id", "é" * 100, "x" * MAX_ID]),
    st.floats(allow_nan=False),
    st.binary(min_size=16, max_size=16),
)
def test_a_filled_template_is_the_message_that_protobuf_would_write(names, id, queue_ms, data):
    query, _ = full(spelled(id=id).SerializeToString())
    terms = query.terms
    terms.outputs = tuple((name, True) for name in names)
    parts = (data, memoryview(data)[:12], b"")
    template = GrpcTemplate(terms, "m", "big", PARAMETERS, ("queue_ms", "model_ms"), HEADERS)
    filled = pb.ModelInferResponse.FromString(template.fill(id, queue_ms, template.fill_batch((2.5,)), parts))
    expected = pb.ModelInferResponse(model_name="m", model_version="big", id=id)
    grpc.set_parameters(expected, PARAMETERS | {"queue_ms": queue_ms, "model_ms": 2.5})
    for name in names:
        place = [header.name for header in HEADERS].index(name)
        header = HEADERS[place]
        expected.outputs.add(name=name, datatype=header.datatype, shape=header.shape)
        expected.raw_output_contents.append(bytes(parts[place]))
    assert filled == expected


@pytest.mark.parametrize(("names", "right"), [(("p",), True), (("p", "missing"), False)])
def test_there_is_no_template_for_an_output_that_is_missing(names, right):
    terms = full(spelled().SerializeToString())[0].terms
    terms.outputs = tuple((name, True) for name in names)
    assert GrpcTemplate.fits(terms, HEADERS) == right
