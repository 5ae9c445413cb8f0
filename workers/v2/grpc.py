"""Open Inference Protocol (V2) over gRPC. Pure.

Messages are protobuf, with raw or typed contents.

:func:`split` finds the fields of a serialised ModelInferRequest, :func:`query` checks them against an application's
signature. :mod:`.grpc_template` serialises responses, whose outputs are raw contents always, as Triton's are.

Protobuf copies every ``bytes`` field, once when it parses a message and once when the field is read. Raw contents do
not go through it: a length-delimited field is its tag, its length and its bytes, and fields of a message may stand in
any order (https://protobuf.dev/programming-guides/encoding/), so raw contents are read where they lie, and appended to
a response behind the bytes that protobuf wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from google.protobuf.message import DecodeError

from workers.protocol.datatypes import CONTENTS, NUMPY
from workers.protocol.frames import Buffer
from workers.protocol.specs import Signature

from . import inference_pb2 as pb
from . import tensors
from .query import COPY_BYTES, Input, Output, Request, V2Error, V2Query, binary_size, check, check_binary_size

#: fields at the top level of a message, one for each input, output, contents and parameter: more would take seconds
FIELDS = 4096

_REQUEST = pb.ModelInferRequest.DESCRIPTOR.fields_by_name
_ID, _RAW_INPUT = (_REQUEST[name].number << 3 | 2 for name in ("id", "raw_input_contents"))
#: tag of each output's packed data
RAW_OUTPUT = bytes([pb.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | 2])
_STREAMED = bytes([pb.ModelStreamInferResponse.DESCRIPTOR.fields_by_name["infer_response"].number << 3 | 2])


class RequestFields(msgspec.Struct):
    """A serialised ModelInferRequest in parts.

    Attributes:
        rest: serialised fields other than the following.
        id: the request's id.
        contents: raw contents, views of the message if it is large.
    """

    rest: bytes
    id: str
    contents: Sequence[Buffer]

    def parse(self) -> pb.ModelInferRequest:
        message = _parse(self.rest)
        message.id = self.id
        return message


def split(data: Buffer) -> RequestFields:
    """The parts of a serialised ModelInferRequest.

    Raises:
        V2Error: not such a message, or one of more than :data:`FIELDS` fields.
    """
    view = data if len(data) <= COPY_BYTES else memoryview(data)
    id, contents, rest = "", [], []
    size, begin, offset = len(data), 0, 0
    try:
        for _ in range(FIELDS):
            if offset == size:
                break
            field, tag, length = offset, data[offset], data[offset + 1]
            offset += 2
            if tag & 0x87 != 2:
                return _split_by_protobuf(data)
            if length > 0x7F:
                length, offset = _varint(data, offset - 1)
            end = offset + length
            if end > size:
                raise IndexError
            if tag == _RAW_INPUT:
                contents.append(view[offset:end])
            elif tag == _ID:
                id = str(view[offset:end], "utf-8")
            else:
                offset = end
                continue
            if begin < field:
                rest.append(view[begin:field])
            begin = offset = end
        if offset < size:
            raise V2Error(f"message: has more than {FIELDS} fields at its top level")
        rest.append(view[begin:])
        return RequestFields(b"".join(rest), id, contents)
    except IndexError:
        raise V2Error("message: is not a valid inference.ModelInferRequest; it is cut off") from None
    except UnicodeDecodeError:
        raise V2Error("message: is not a valid inference.ModelInferRequest; its id is not UTF-8") from None


def _split_by_protobuf(data: Buffer) -> RequestFields:
    """Split a message with fields that no ModelInferRequest has."""
    message = _parse(data)
    id, contents = message.id, message.raw_input_contents[:]
    message.ClearField("id")
    message.ClearField("raw_input_contents")
    return RequestFields(message.SerializeToString(), id, contents)


def _parse(data: Buffer) -> pb.ModelInferRequest:
    try:
        return pb.ModelInferRequest.FromString(data)
    except DecodeError:
        raise V2Error("message: is not a valid inference.ModelInferRequest") from None


def _varint(data: Buffer, offset: int) -> tuple[int, int]:
    """A number and the offset behind it. Raises IndexError if cut off or longer than 10 bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise IndexError


# --- queries --------------------------------------------------------------------------------------------------------


def query(message: pb.ModelInferRequest, contents: Sequence[Buffer], signature: Signature, max_rows: int) -> V2Query:
    # Slices are lists, made in one go; iterating costs protobuf an exception at the end of each field.
    inputs, outputs = message.inputs[:], message.outputs[:]
    if contents and len(contents) != len(inputs):
        raise V2Error(
            f"raw_input_contents: has {len(contents)} items for {len(inputs)} inputs; "
            "one for each is needed, or none and typed contents in all inputs"
        )
    request = Request(
        inputs=[Input(item.name, item.shape[:], item.datatype, _parameters(item.parameters)) for item in inputs],
        id=message.id,
        parameters=_parameters(message.parameters),
        outputs=[Output(item.name, _parameters(item.parameters)) for item in outputs],
    )

    def take(place: int, field: str, item: Input) -> Buffer:
        size = binary_size(field, item) if item.parameters else None
        if contents:
            data = _raw(place, field, item, inputs[place], contents[place])
        else:
            data = _typed(field, item, inputs[place].contents)
        if size is not None:
            check_binary_size(field, size, data)
        return data

    return check(request, signature, max_rows, take)


def _parameters(parameters: Mapping[str, pb.InferParameter]) -> dict[str, Any] | None:
    if not parameters:
        return None
    values = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        # Without a value it is what null is in JSON.
        values[name] = None if choice is None else getattr(parameter, choice)
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
    own = CONTENTS.get(item.datatype)
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


def set_parameters(message: pb.ModelInferResponse, parameters: Mapping[str, str | bool | int | float]) -> None:
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


#: parameters of each response of a stream: Triton's mark that no other one follows for the query
FINAL = {"triton_final_response": True}
_final = pb.ModelInferResponse()
set_parameters(_final, FINAL)
#: the same serialised: fields of a message may stand in any order
_FINAL = _final.SerializeToString()
_FINAL_BYTES = len(_FINAL)


def streamed(response: bytes) -> bytes:
    return b"".join((_STREAMED, varint(len(response) + _FINAL_BYTES), response, _FINAL))


def streamed_error(id: str, message: str) -> bytes:
    """A serialised ModelStreamInferResponse that says why the query of this id failed."""
    response = pb.ModelInferResponse(id=id)
    set_parameters(response, FINAL)
    return pb.ModelStreamInferResponse(error_message=message, infer_response=response).SerializeToString()


def varint(value: int) -> bytes:
    """A number as protobuf encodes it (its "Encoding" guide, varints)."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
