"""Responses over gRPC as templates that are rendered once. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from workers.protocol.frames import Buffer, TensorHeader

from . import inference_pb2 as pb
from .grpc import RAW_OUTPUT, set_parameters, varint
from .query import Terms

_pack = struct.Struct("<d").pack
_ID = bytes([pb.ModelInferResponse.DESCRIPTOR.fields_by_name["id"].number << 3 | 2])


class GrpcTemplate:
    """A serialised ModelInferResponse with gaps.

    The gaps are for the request's id, parameters that are floating-point numbers, and the tensors.

    Args:
        parameters: of the response; ``numbers``: names of those that differ, the first one by query, others by batch.
        headers: the model's outputs; see :meth:`fits`.
    """

    __slots__ = ("_before", "_order", "_others", "_prefixes")

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
        numbers: Sequence[str],
        headers: Sequence[TensorHeader],
    ):
        names = [header.name for header in headers]
        self._order = tuple([names.index(name) for name, _ in terms.outputs])
        wanted = [headers[place] for place in self._order]
        message = pb.ModelInferResponse(model_name=model, model_version=version)
        set_parameters(message, {name: value for name, value in parameters.items() if name not in numbers})
        for header in wanted:
            message.outputs.add(name=header.name, datatype=header.datatype, shape=header.shape)
        first, *self._others = [_parameter(name) for name in numbers]
        self._before = message.SerializeToString() + first
        self._prefixes = [RAW_OUTPUT + varint(header.nbytes) for header in wanted]

    def fill_batch(self, numbers: tuple[float, ...]) -> bytes:
        """The numbers that all of a batch share, for :meth:`fill`."""
        return b"".join([prefix + _pack(number) for prefix, number in zip(self._others, numbers, strict=True)])

    def fill(self, id: str, number: float, batch: bytes, parts: Sequence[Buffer]) -> bytes:
        """Return the message with its gaps filled.

        Args:
            batch: from :meth:`fill_batch`.
            parts: packed data of all the model's outputs.
        """
        pieces: list[Buffer] = [self._before, _pack(number), batch]
        for prefix, place in zip(self._prefixes, self._order, strict=True):
            pieces.append(prefix)
            pieces.append(parts[place])
        if id:
            encoded = id.encode()
            pieces += (_ID, varint(len(encoded)), encoded)
        return b"".join(pieces)


def _parameter(name: str) -> bytes:
    """A parameter as serialised, without its number's eight bytes at the end."""
    message = pb.ModelInferResponse()
    set_parameters(message, {name: 1.0})
    return message.SerializeToString()[: -len(_pack(1.0))]
