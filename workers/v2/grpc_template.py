"""Responses over gRPC as templates that are rendered once. Pure."""

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


class GrpcTemplate:
    """A serialised ModelInferResponse as :func:`.grpc.render` would serialise it, in another order of fields, with gaps
    for the request's id, one parameter that is a floating-point number, and the tensors.

    Args:
        parameters: of the response; ``number``: the name of the one that differs.
        headers: the model's outputs; see :meth:`fits`.
    """

    __slots__ = ("_before", "_order", "_prefixes")

    @staticmethod
    def fits(terms: Terms, headers: Sequence[TensorHeader]) -> bool:
        """Whether the model gave all wanted outputs."""
        return {header.name for header in headers}.issuperset(name for name, _ in terms.outputs)

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
        # A floating-point number has eight bytes, the last ones of the parameter.
        self._before = message.SerializeToString() + numbered.SerializeToString()[: -len(_pack(1.0))]
        self._prefixes = [RAW_OUTPUT + varint(header.nbytes) for header in wanted]

    def fill(self, id: str, number: float, parts: Sequence[Buffer]) -> bytes:
        """The message; ``parts``: packed data of all the model's outputs."""
        pieces: list[Buffer] = [self._before, _pack(number)]
        for prefix, place in zip(self._prefixes, self._order, strict=True):
            pieces.append(prefix)
            pieces.append(parts[place])
        if id:
            encoded = id.encode()
            pieces += (_ID, varint(len(encoded)), encoded)
        return b"".join(pieces)
