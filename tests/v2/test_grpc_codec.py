"""Protobuf's spelling of a V2 query says the same as HTTP's."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol.datatypes import NUMPY
from workers.protocol.frames import TensorHeader
from workers.protocol.specs import Signature, TensorSpec
from workers.v2 import grpc, http
from workers.v2 import inference_pb2 as pb
from workers.v2.grpc_template import GrpcTemplate
from workers.v2.query import V2Error, V2Query

TWO = Signature(
    (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "BYTES", (-1,))),
    (TensorSpec("p", "FP32", (-1, 2)), TensorSpec("q", "BYTES", (-1,))),
)
WIDE = Signature((TensorSpec("x", "FP32", (-1, 40_000)),), (TensorSpec("y", "FP32", (-1,)),))
#: where a datatype's typed contents stand
CONTENTS = {"BOOL": "bool_contents", "INT64": "int64_contents", "UINT64": "uint64_contents"}
CONTENTS |= {f"{sign}INT{bits}": f"{sign.lower()}int_contents" for sign in ("", "U") for bits in (8, 16, 32)}
CONTENTS |= {"FP32": "fp32_contents", "FP64": "fp64_contents"}


def one(datatype: str) -> Signature:
    return Signature((TensorSpec("x", datatype, (-1, 2)),), (TensorSpec("y", "FP32", (-1,)),))


def query(message: pb.ModelInferRequest, signature: Signature = TWO, max_rows: int = 64) -> V2Query:
    fields = grpc.split(message.SerializeToString())
    return grpc.query(fields.parse(), fields.contents, signature, max_rows)


def raw(x: np.ndarray | None = None) -> pb.ModelInferRequest:
    a = np.array([[1, 2]], np.float32) if x is None else x
    return pb.ModelInferRequest(
        model_name="m",
        inputs=[
            {"name": "b", "datatype": "BYTES", "shape": [1]},
            {"name": "a", "datatype": "FP32", "shape": list(a.shape)},
        ],
        raw_input_contents=[b"\x02\0\0\0hi", a.tobytes()],
    )


def typed(datatype: str, values: list, **more) -> pb.ModelInferRequest:
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 2], "contents": {CONTENTS[datatype]: values, **more}}
    return pb.ModelInferRequest(model_name="m", inputs=[tensor])


def empty(datatype: str) -> pb.ModelInferRequest:
    return pb.ModelInferRequest(inputs=[{"name": "x", "datatype": datatype, "shape": [1, 2]}])


def test_raw_contents_mean_what_http_s_binary_data_means():
    message = raw()
    message.id = "q"
    message.outputs.add(name="q")
    message.parameters["latency_ms"].int64_param = 150
    message.parameters["min_accuracy"].double_param = 90.5
    binary = {"binary_data_size": 6}, {"binary_data_size": 8}
    text = json.dumps(
        {
            "id": "q",
            "inputs": [
                {"name": "b", "datatype": "BYTES", "shape": [1], "parameters": binary[0]},
                {"name": "a", "datatype": "FP32", "shape": [1, 2], "parameters": binary[1]},
            ],
            "outputs": [{"name": "q"}],
            "parameters": {"latency_ms": 150, "min_accuracy": 90.5},
        }
    ).encode()
    over_http = http.parse(text + b"".join(message.raw_input_contents), len(text), TWO, 64)
    assert msgspec.structs.asdict(query(message).terms) == msgspec.structs.asdict(over_http.terms)
    assert query(message).id == over_http.id and list(query(message).parts) == list(over_http.parts)


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_are_packed(datatype):
    dtype = NUMPY[datatype]
    values = [0, 1] if dtype.kind == "b" else [np.iinfo(dtype).min, np.iinfo(dtype).max] if dtype.kind in "iu" else None
    values = [1.5, float("inf")] if values is None else values
    made = query(typed(datatype, values), one(datatype))
    assert bytes(made.parts[0]) == np.array([values], dtype).tobytes()


def test_typed_strings_are_packed():
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1, 2], "contents": {"bytes_contents": [b"", b"a\0"]}}
    made = query(pb.ModelInferRequest(model_name="m", inputs=[tensor]), one("BYTES"))
    assert bytes(made.parts[0]) == b"\0\0\0\0\x02\0\0\0a\0"


@pytest.mark.parametrize(
    ("message", "signature", "words"),
    [
        (typed("INT8", [1, 128]), one("INT8"), "inputs.x.contents.int_contents: of INT8 must be from -128 to 127"),
        (typed("UINT8", [1, 256]), one("UINT8"), "inputs.x.contents.uint_contents: of UINT8 must be from 0 to 255"),
        (typed("FP32", [1]), one("FP32"), "inputs.x.contents.fp32_contents: has 1 elements; shape [1, 2] takes 2"),
        (
            typed("FP32", [1, 2], int_contents=[1]),
            one("FP32"),
            "inputs.x.contents.int_contents: must be empty; FP32 goes into fp32_contents",
        ),
        (empty("FP16"), one("FP16"), "inputs.x.contents: FP16 has no typed form; send raw_input_contents"),
        (empty("FP32"), one("FP32"), "inputs.x: has neither contents nor raw_input_contents"),
        (pb.ModelInferRequest(), one("FP32"), "inputs: x missing"),
        (raw(), one("FP32"), "inputs: 'b' is not an input; the application takes x"),
        (raw(np.zeros((2, 2), np.float32)), TWO, "'a' has 2, 'b' 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(message, signature, words):
    with pytest.raises(V2Error) as caught:
        query(message, signature)
    assert words in str(caught.value)


def changed(change) -> pb.ModelInferRequest:
    message = raw()
    change(message)
    return message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda m: m.raw_input_contents.__setitem__(1, b"123"),
            "raw_input_contents[1]: of input 'a': has 3 bytes; shape [1, 2] of FP32 takes 8",
        ),
        (
            lambda m: m.raw_input_contents.__setitem__(0, b"\x09\0\0\0hi"),
            "raw_input_contents[0]: of input 'b': BYTES element at byte 4 is 9 bytes long, 2 are left",
        ),
        (lambda m: m.raw_input_contents.pop(), "raw_input_contents: has 1 items for 2 inputs"),
        (lambda m: m.raw_input_contents.append(b""), "raw_input_contents: has 3 items for 2 inputs"),
        (
            lambda m: m.inputs[1].contents.fp32_contents.append(1),
            "inputs.a.contents: must be empty where raw_input_contents has the data",
        ),
        (
            lambda m: setattr(m.inputs[1].parameters["shared_memory_region"], "string_param", "r"),
            "inputs.a.parameters.shared_memory_region: not supported; send data in the request",
        ),
        (
            lambda m: setattr(m.inputs[1].parameters["binary_data_size"], "int64_param", 7),
            "inputs.a.parameters.binary_data_size: is 7, its data has 8 bytes",
        ),
        (
            lambda m: setattr(m.parameters["latency_ms"], "string_param", "1"),
            "parameters.latency_ms: must be a number, not '1'",
        ),
        (lambda m: setattr(m.parameters["latency_ms"], "int64_param", 0), "a finite number above 0"),
        (
            lambda m: setattr(m.parameters["sequence_id"], "int64_param", 1),
            "parameters.sequence_id: sequences (stateful models) are not supported",
        ),
        (lambda m: m.outputs.add(name="r"), "outputs: 'r' is not an output; the application has p, q"),
        (lambda m: setattr(m.inputs[1], "datatype", "FP64"), "inputs.a.datatype: is FP64, must be FP32"),
        (lambda m: m.inputs[1].shape.append(1), "inputs.a.shape: has 3 dimensions, must have 2"),
        (lambda m: setattr(m, "id", "x" * 1025), "id: at most 1024 characters"),
    ],
)
def test_each_mistake_names_its_field(change, words):
    with pytest.raises(V2Error) as caught:
        query(changed(change))
    assert words in str(caught.value)


@given(st.binary(max_size=60), st.integers(0, 3), st.booleans(), st.booleans())
def test_messages_are_split_as_protobuf_parses_them(more, place, twice, grouped):
    x = np.arange(40_000, dtype=np.float32)
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 40_000]}]
    head = pb.ModelInferRequest(model_name="m", inputs=inputs).SerializeToString()
    contents = pb.ModelInferRequest(raw_input_contents=[x.tobytes()] * (1 + twice)).SerializeToString()
    # With fields that nobody knows, one of them a group that holds what looks like contents.
    pieces = [head, pb.ModelInferRequest(id="i").SerializeToString(), b"\x9a\x3f\x02hi\xa1\x3f12345678"]
    if grouped:
        pieces.append(b"\xa3\x3f\x3a\x02hi\xa4\x3f")
    pieces.insert(place, contents)
    # Then anything at all behind it: protobuf and this must agree whether it is a message, and which.
    data = b"".join([*pieces, more])
    try:
        whole = pb.ModelInferRequest.FromString(data)
    except Exception:
        with pytest.raises(V2Error, match=r"^message: is not a valid inference\.ModelInferRequest"):
            grpc.split(data).parse()
        return
    fields = grpc.split(data)
    message = fields.parse()
    assert [bytes(part) for part in fields.contents] == list(whole.raw_input_contents)
    assert (message.model_name, message.id, list(message.inputs)) == (whole.model_name, whole.id, list(whole.inputs))


def test_large_tensors_are_not_copied():
    x = np.arange(40_000, dtype=np.float32)
    inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 40_000]}]
    data = pb.ModelInferRequest(inputs=inputs, raw_input_contents=[x.tobytes()]).SerializeToString()
    fields = grpc.split(data)
    made = grpc.query(fields.parse(), fields.contents, WIDE, 4)
    assert isinstance(made.parts[0], memoryview)
    assert made.parts[0].obj is data
    np.testing.assert_array_equal(np.frombuffer(made.parts[0], np.float32), x)


@pytest.mark.parametrize("cut", [1, 70_000, 150_000])
def test_a_message_that_is_cut_off_is_refused(cut):
    data = pb.ModelInferRequest(raw_input_contents=[bytes(160_000)]).SerializeToString()
    with pytest.raises(V2Error, match=r"is not a valid inference\.ModelInferRequest"):
        grpc.split(data[:-cut])


@pytest.mark.parametrize("field", [b"\x3a\x00", b"\x2a\x00"], ids=["contents", "inputs"])
def test_fields_of_a_message_are_limited(field):
    most = grpc.FIELDS * field + pb.ModelInferRequest(raw_input_contents=[bytes(100_000)]).SerializeToString()
    with pytest.raises(V2Error, match=f"^message: has more than {grpc.FIELDS} fields at its top level$"):
        grpc.split(most)
    assert len(grpc.split(most[len(field) :]).contents) == 1 + (grpc.FIELDS - 1) * (field == b"\x3a\x00")


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_384, 3_000_000])
def test_answers_are_what_protobuf_would_write(size):
    part = memoryview(bytes(size))
    headers = (TensorHeader("q", "BYTES", (1,), size), TensorHeader("p", "FP32", (1, 2), 8))
    made = query(raw())
    parameters = {"variant": "v", "accuracy": 99.0, "batch_size": 3, "late": True, "queue_ms": 0.0}
    template = GrpcTemplate(made.terms, "m", "v", parameters, ("queue_ms",), headers)
    filled = template.fill("", 0.5, template.fill_batch(()), (part, memoryview(b"12345678")))
    answer = pb.ModelInferResponse.FromString(filled)
    assert [(o.name, o.datatype, list(o.shape)) for o in answer.outputs] == [("p", "FP32", [1, 2]), ("q", "BYTES", [1])]
    assert list(answer.raw_output_contents) == [b"12345678", bytes(size)]
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "v", "")
    assert answer.parameters["accuracy"].double_param == 99.0
    assert answer.parameters["batch_size"].int64_param == 3
    assert answer.parameters["late"].bool_param is True
    streamed = pb.ModelStreamInferResponse.FromString(grpc.streamed(answer.SerializeToString()))
    assert streamed.infer_response.parameters.pop("triton_final_response").bool_param
    assert streamed.infer_response == answer
