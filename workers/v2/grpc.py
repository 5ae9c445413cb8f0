"""Open Inference Protocol (V2) queries in gRPC's spelling: protobuf messages with raw or typed contents. Pure.

:func:`read` takes a message apart, :func:`query` checks it against an application's signature (by
:func:`~.query.check`, as for HTTP), :func:`render` makes the answer, whose outputs are raw contents
always, as Triton's are.

Protobuf copies every ``bytes`` field, once when it reads a message and once when the field is read. Large tensors do
not go through it: a length-delimited field is its tag, its length and its bytes, and fields of a message may stand in
any order (https://protobuf.dev/programming-guides/encoding/), so raw contents are taken from a large message as they
lie there, and appended to the answer behind what protobuf wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

from workers.protocol.datatypes import NUMPY
from workers.protocol.frames import Buffer, TensorHeader
from workers.protocol.specs import Signature

from . import tensors
from .query import Input, Output, Query, Request, V2Error, check, wanted

#: from this size on (bytes), taking a message apart here costs less than protobuf's copies
LARGE = 64 * 1024
#: fields of a large message; inputs, outputs, contents and parameters are one each. To look for more would take seconds
FIELDS = 4096

_RAW_INPUT = pb.ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number << 3 | 2
#: in front of each output's packed data and its length
RAW_OUTPUT = bytes([pb.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | 2])
_STREAMED = bytes([pb.ModelStreamInferResponse.DESCRIPTOR.fields_by_name["infer_response"].number << 3 | 2])
#: which of InferTensorContents' fields holds a datatype; the others have none and are sent raw
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def read(data: bytes) -> tuple[pb.ModelInferRequest, Sequence[Buffer]]:
    """A serialised ModelInferRequest and its raw contents, which may be views of ``data``.

    Raises:
        V2Error: not such a message.
    """
    if len(data) >= LARGE:
        places = raw_places(data)
        if places:
            return parsed(_without(data, places)), [memoryview(data)[start:end] for _, start, end in places]
    message = parsed(data)
    return message, message.raw_input_contents


def parsed(data: Buffer) -> pb.ModelInferRequest:
    """Raises V2Error."""
    try:
        return pb.ModelInferRequest.FromString(data)
    except DecodeError:
        raise V2Error("message: is not a valid inference.ModelInferRequest") from None


def raw_places(data: Buffer) -> list[tuple[int, int, int]]:
    """Of each of the raw contents of a serialised ModelInferRequest: where its field begins, where its bytes begin, and
    where both end. Nothing where there are groups, which no field of this message is and only protobuf should judge.

    Raises:
        V2Error: it is cut off, or has more than :data:`FIELDS` fields.
    """
    size, offset, fields = len(data), 0, 0
    places: list[tuple[int, int, int]] = []
    try:
        while offset < size:
            field = offset
            fields += 1
            if fields > FIELDS:
                raise V2Error(f"message: has more than {FIELDS} fields at its top level")
            tag, offset = _varint(data, offset)
            kind = tag & 7
            if kind == 2:
                length, offset = _varint(data, offset)
                if length > size - offset:
                    raise IndexError
                if tag == _RAW_INPUT:
                    places.append((field, offset, offset + length))
                offset += length
            elif kind == 0:
                _, offset = _varint(data, offset)
            elif kind in (1, 5):
                offset += 8 if kind == 1 else 4
            else:
                return []
    except IndexError:
        raise V2Error("message: is not a valid inference.ModelInferRequest; it is cut off") from None
    return places


def _without(data: Buffer, places: list[tuple[int, int, int]]) -> bytes:
    """The message without its raw contents."""
    view, kept, offset = memoryview(data), [], 0
    for field, _, end in places:
        kept.append(view[offset:field])
        offset = end
    return b"".join([*kept, view[offset:]])


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """(value, offset behind it). Raises IndexError where it is cut off or longer than 10 bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise IndexError


# --- queries --------------------------------------------------------------------------------------------------------


def query(message: pb.ModelInferRequest, contents: Sequence[Buffer], signature: Signature, max_rows: int) -> Query:
    """What :func:`read` gave as a query for ``signature`` of at most ``max_rows`` rows.

    Raises:
        V2Error: anything that a client can get wrong.
    """
    # Slices are lists, made in one go; iterating costs protobuf an exception at the end of each field.
    inputs, outputs = message.inputs[:], message.outputs[:]
    if contents and len(contents) != len(inputs):
        raise V2Error(
            f"raw_input_contents: has {len(contents)} items for {len(inputs)} inputs; "
            "one for each is needed, or none and typed contents in all inputs"
        )
    request = Request(
        inputs=[
            Input(item.name, item.shape[:], item.datatype, _parameters("inputs." + item.name, item.parameters))
            for item in inputs
        ],
        id=message.id,
        parameters=_parameters("", message.parameters),
        outputs=[Output(item.name, _parameters("outputs." + item.name, item.parameters)) for item in outputs],
    )

    def take(place: int, field: str, item: Input) -> Buffer:
        for name in item.parameters:
            raise V2Error(f"{field}.parameters.{name}: not supported over gRPC")
        if contents:
            return _raw(place, field, item, inputs[place], contents[place])
        return _typed(field, item, inputs[place].contents)

    return check(request, signature, max_rows, take)


def _parameters(owner: str, parameters: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    if not parameters:
        return {}
    values = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise V2Error(f"{owner + '.' if owner else ''}parameters.{name}: has no value")
        values[name] = getattr(parameter, choice)
    return values


def _raw(place: int, field: str, item: Input, given: pb.ModelInferRequest.InferInputTensor, data: Buffer) -> Buffer:
    if given.HasField("contents") and given.contents.ListFields():
        raise V2Error(f"{field}.contents: must be empty where raw_input_contents has the data")
    try:
        tensors.check_packed(item.datatype, item.shape, data)
    except tensors.TensorError as error:
        raise V2Error(f"raw_input_contents[{place}]: of input {item.name!r}: {error}") from None
    return data


def _typed(field: str, item: Input, contents: pb.InferTensorContents) -> bytes:
    """An input's typed contents, packed."""
    own = _CONTENTS.get(item.datatype)
    if own is None:
        raise V2Error(f"{field}.contents: {item.datatype} has no typed form; send raw_input_contents")
    for filled, _ in contents.ListFields():
        if filled.name != own:
            raise V2Error(f"{field}.contents.{filled.name}: must be empty; {item.datatype} goes into {own}")
    values = getattr(contents, own)
    count = tensors.elements(item.shape)
    if len(values) != count:
        if not values:
            raise V2Error(f"{field}: has neither contents nor raw_input_contents")
        raise V2Error(f"{field}.contents.{own}: has {len(values)} elements; shape {item.shape} takes {count}")
    if item.datatype == "BYTES":
        return b"".join(piece for value in values for piece in (len(value).to_bytes(4, "little"), value))
    dtype = NUMPY[item.datatype]
    if own not in ("int_contents", "uint_contents"):
        return np.fromiter(values, dtype, count).tobytes()
    wide = np.fromiter(values, np.int64, count)
    limits = np.iinfo(dtype)
    if count and (wide.min() < limits.min or wide.max() > limits.max):
        raise V2Error(f"{field}.contents.{own}: of {item.datatype} must be from {limits.min} to {limits.max}")
    return wide.astype(dtype).tobytes()


# --- responses ------------------------------------------------------------------------------------------------------


def render(
    query: Query,
    model: str,
    version: str,
    parameters: Mapping[str, str | bool | int | float],
    headers: Sequence[TensorHeader],
    parts: Sequence[Buffer],
) -> bytes:
    """A serialised ModelInferResponse, outputs in the order that the query wants.

    Raises:
        V2Error: an output is missing.
    """
    message = pb.ModelInferResponse(model_name=model, model_version=version, id=query.id)
    set_parameters(message, parameters)
    pieces: list[Buffer] = [b""]
    for name, _, header, part in wanted(query, headers, parts):
        message.outputs.add(name=name, datatype=header.datatype, shape=header.shape)
        pieces += (RAW_OUTPUT, varint(len(part)), part)
    pieces[0] = message.SerializeToString()
    return b"".join(pieces)


def set_parameters(message: pb.ModelInferResponse, parameters: Mapping[str, str | bool | int | float]) -> None:
    """Have a response tell these."""
    for name, value in parameters.items():
        parameter = message.parameters[name]
        if isinstance(value, str):
            parameter.string_param = value
        elif isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            parameter.int64_param = value
        else:
            parameter.double_param = value


def streamed(response: bytes) -> bytes:
    """A serialised ModelStreamInferResponse around a serialised ModelInferResponse."""
    return b"".join((_STREAMED, varint(len(response)), response))


def streamed_error(id: str, message: str) -> bytes:
    """A serialised ModelStreamInferResponse that tells why the query with this id has no answer."""
    return pb.ModelStreamInferResponse(
        error_message=message, infer_response=pb.ModelInferResponse(id=id)
    ).SerializeToString()


def varint(value: int) -> bytes:
    """As protobuf spells it (https://protobuf.dev/programming-guides/encoding/#varints)."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
