"""Responses over gRPC: all of a batch's are alike but for a number and the tensors, and what is alike is rendered once.
Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from workers.protocol.frames import Buffer, TensorHeader

from .grpc import RAW_OUTPUT, set_parameters, varint
from .query import Terms

_pack = struct.Struct("<d").pack
_ID = bytes([pb.ModelInferResponse.DESCRIPTOR.fields_by_name["id"].number << 3 | 2])


class Template:
    """A serialised ModelInferResponse with places left for the request's id, one parameter that is a floating-point
    number, and the tensors; it says what :func:`~.grpc.render` would say, its fields in another order.

    Args:
        parameters: of the response. ``number``: the name of the one that is not the same each time.
        headers: the outputs that there are; those that the terms name must be among them.
    """

    __slots__ = ("_before", "_gaps", "_order")

    def __init__(
        self,
        terms: Terms,
        model: str,
        version: str,
        parameters: Mapping[str, Any],
        number: str,
        headers: Sequence[TensorHeader],
    ):
        names = [header.name for header in headers]
        self._order = tuple([names.index(name) for name, _ in terms.outputs])
        wanted = [headers[place] for place in self._order]
        message = pb.ModelInferResponse(model_name=model, model_version=version)
        set_parameters(message, {name: value for name, value in parameters.items() if name != number})
        for header in wanted:
            message.outputs.add(name=header.name, datatype=header.datatype, shape=header.shape)
        numbered = pb.ModelInferResponse()
        set_parameters(numbered, {number: 1.0})
        # A floating-point number is eight bytes whatever it is, and the last of what it stands in.
        self._before = message.SerializeToString() + numbered.SerializeToString()[: -len(_pack(1.0))]
        self._gaps = [RAW_OUTPUT + varint(header.nbytes) for header in wanted]

    def fill(self, id: str, number: float, parts: Sequence[Buffer]) -> bytes:
        """The whole of it. ``parts``: packed data of all outputs that there are, as long as their headers say."""
        pieces: list[Buffer] = [self._before, _pack(number)]
        for gap, place in zip(self._gaps, self._order, strict=True):
            pieces.append(gap)
            pieces.append(parts[place])
        if id:
            said = id.encode()
            pieces += (_ID, varint(len(said)), said)
        return b"".join(pieces)


def fits(terms: Terms, headers: Sequence[TensorHeader]) -> bool:
    """Whether such a template can be made."""
    names = [header.name for header in headers]
    return all(name in names for name, _ in terms.outputs)
