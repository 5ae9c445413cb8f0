"""The largest queries that can be right, from what their application takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from workers.protocol.datatypes import ITEM_BYTES
from workers.protocol.specs import Signature

#: names, shapes, parameters and wanted outputs, which no signature bounds: ample
AROUND_BYTES = 64 * 1024
#: JSON characters of one element: a number of 64 bits takes up to 25, and a line of its own that is indented far
ELEMENT_CHARS = 64
#: bytes of one element as protobuf's typed contents: a varint of 64 bits, and a tag where they are not packed
VARINT_BYTES = 11


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The most bytes of a query for one application.

    Attributes:
        json_bytes: of JSON.
        binary_bytes: of binary data behind it.
        message_bytes: of a gRPC message.
        json_capped: the setting determines the first, and not the signature.
    """

    json_bytes: int
    binary_bytes: int
    message_bytes: int
    json_capped: bool


def body_limits(signature: Signature, max_rows: int, max_bytes: int, max_json_bytes: int) -> BodyLimits:
    """Limits for queries of up to ``max_rows`` rows.

    Args:
        max_bytes, max_json_bytes: limits for all applications, which remain where the signature has none.
    """
    json_bytes = message_bytes = AROUND_BYTES
    binary_bytes = 0
    for spec in signature.inputs:
        elements = max_rows
        for size in spec.shape[1:]:
            elements *= size if size >= 0 else spec.most
        item = ITEM_BYTES.get(spec.datatype)
        if item is None or (any(size < 0 for size in spec.shape[1:]) and not spec.most):
            # Text and open dimensions may be as large as anything.
            return BodyLimits(min(max_bytes, max_json_bytes), max_bytes, max_bytes, True)
        json_bytes += elements * ELEMENT_CHARS
        binary_bytes += elements * item
        message_bytes += elements * max(item, VARINT_BYTES)
    most = min(max_bytes, max_json_bytes)
    return BodyLimits(
        min(json_bytes, most), min(binary_bytes, max_bytes), min(message_bytes, max_bytes), json_bytes > most
    )
