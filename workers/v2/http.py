"""Open Inference Protocol (V2) over HTTP. Pure.

JSON, and the binary tensor data extension. :func:`parse` turns an HTTP body into a checked query; :func:`render` turns
an executor's tensors into a response body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from workers.protocol.frames import Buffer, TensorHeader
from workers.protocol.specs import Signature

from . import tensors
from .query import Input, NotSendable, Request, V2Error, V2Query, binary_size, check, check_binary_size
from .tensors import NoJsonForm, TensorError

#: header with the length of the JSON part of a body
HEADER_LENGTH = "Inference-Header-Content-Length"


class IndexRequest(msgspec.Struct):
    ready: bool | None = None


_decoder = msgspec.json.Decoder(Request)
_encoder = msgspec.json.Encoder()


def parse(body: Buffer, header_length: int | None, signature: Signature, max_rows: int) -> V2Query:
    """The query alone, as :func:`read` finds it."""
    return read(body, header_length, signature, max_rows)[0]


def read(
    body: Buffer, header_length: int | None, signature: Signature, max_rows: int
) -> tuple[V2Query, dict[str, tuple[int, int]]]:
    """A request body as a query for ``signature``.

    Args:
        body: the whole body, already decompressed.
        header_length: value of :data:`HEADER_LENGTH`; None: the whole body is JSON.
        max_rows: most rows that one query may have.

    Returns:
        The query, and where the data of each input begins and ends behind the JSON, unless it is in the JSON.

    Raises:
        V2Error: the query is not valid.
    """
    view = memoryview(body)
    if header_length is None:
        header_length = len(view)
    if not 0 <= header_length <= len(view):
        raise V2Error(f"{HEADER_LENGTH}: is {header_length}, the body has {len(view)} bytes")
    if header_length == 0:
        raise V2Error("body: is empty; a JSON object with 'inputs' is needed")
    try:
        request = _decoder.decode(view[:header_length])
    except msgspec.ValidationError as error:
        raise V2Error(f"body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise V2Error(f"body: not valid JSON: {error}") from None
    binary = _Binary(view[header_length:])
    query = check(request, signature, max_rows, binary.take)
    binary.end()
    _check_json_outputs(query, signature)
    return query, binary.places


def _check_json_outputs(query: V2Query, signature: Signature) -> None:
    datatypes = {spec.name: spec.datatype for spec in signature.outputs}
    for name, binary in query.terms.outputs:
        if not binary and datatypes[name] == "BF16":
            raise V2Error(f"outputs.{name}: BF16 has no JSON form; ask for binary data (parameters.binary_data)")


class _Binary:
    """The binary part of a body: the data of each input with a size, in sequence.

    Attributes:
        places: begin and end by input.
    """

    def __init__(self, data: memoryview):
        self._data = data
        self._offset = 0
        self.places: dict[str, tuple[int, int]] = {}

    def take(self, _place: int, field: str, item: Input) -> Buffer:
        size = binary_size(field, item) if item.parameters else None
        if item.data is not None:
            data = tensors.pack(item.datatype, item.shape, item.data)
            if size is not None:
                check_binary_size(field, size, data)
            return data
        if size is None:
            raise V2Error(f"{field}: has neither data nor parameters.binary_data_size")
        data = self._data[self._offset : self._offset + size]
        if len(data) < size:
            raise V2Error(f"{field}.parameters.binary_data_size: is {size}, {len(data)} bytes are left in the body")
        self.places[item.name] = self._offset, self._offset + size
        self._offset += size
        tensors.check_packed(item.datatype, item.shape, data)
        return data

    def end(self) -> None:
        left = len(self._data) - self._offset
        if left:
            raise V2Error(f"body: {left} bytes after the last input's binary data")


# --- responses ------------------------------------------------------------------------------------------------------


def render(
    query: V2Query,
    model: str,
    version: str,
    parameters: dict[str, Any],
    headers: Sequence[TensorHeader],
    parts: Sequence[Buffer],
    null: bool = False,
) -> tuple[list[Buffer], int | None]:
    """Return a response body and the length of its JSON part (None: all of it).

    Outputs are in the order that the query wants.

    Args:
        null: write null for NaN and infinities in JSON.

    Raises:
        NotSendable: an output has no JSON form and was not asked for as binary data.
        V2Error: an output is missing or broken.
    """
    described: list[dict[str, Any]] = []
    binary: list[Buffer] = []
    by_name = {header.name: (header, part) for header, part in zip(headers, parts, strict=True)}
    for name, as_binary in query.terms.outputs:
        if name not in by_name:
            raise V2Error(f"outputs.{name}: the model did not give it")
        header, part = by_name[name]
        entry: dict[str, Any] = {"name": name, "datatype": header.datatype, "shape": header.shape}
        if as_binary:
            entry["parameters"] = {"binary_data_size": len(part)}
            binary.append(part)
        else:
            try:
                entry["data"] = tensors.unpack(header.datatype, header.shape, part, null)
            except NoJsonForm as error:
                raise NotSendable(f"outputs.{name}: {error}") from None
            except TensorError as error:
                raise V2Error(f"outputs.{name}: {error}") from None
        described.append(entry)
    response: dict[str, Any] = {"id": query.id} if query.id else {}
    response.update(model_name=model, model_version=version, parameters=parameters, outputs=described)
    text = _encoder.encode(response)
    asked_binary = any(as_binary for _, as_binary in query.terms.outputs)
    return [text, *binary], len(text) if asked_binary else None
