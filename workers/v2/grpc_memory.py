"""A memory that recognises queries over gRPC. Pure.

They differ from earlier ones in their id and raw contents only. Clients repeat the same fields with new raw contents.
Where all inputs have raw contents, only the sizes of these can be wrong; everything else stands in the other fields,
and the same bytes mean the same.
"""

from __future__ import annotations

from typing import Any

from . import inference_pb2 as pb
from .grpc import RequestFields
from .query import ANY_BYTES, LONGEST, MAX_ID, MOST, Terms, V2Query


class GrpcMemory:
    """Valid queries by their other fields, each with an ``owner``, the caller's own."""

    def __init__(self) -> None:
        #: terms, sizes of raw contents, their order in the signature, owner
        self._known: dict[bytes, tuple[Terms, list[int], list[int], Any]] = {}

    def find(self, fields: RequestFields) -> tuple[V2Query, Any] | None:
        """The query, and the owner of one like it; None: there was none."""
        known = self._known.get(fields.rest)
        if known is None:
            return None
        terms, sizes, order, owner = known
        contents = fields.contents
        if [len(data) for data in contents] != sizes or len(fields.id) > MAX_ID:
            return None
        parts = contents if len(order) == 1 else [contents[place] for place in order]
        return V2Query(fields.id, terms, parts, terms.latency_s), owner

    def remember(self, fields: RequestFields, message: pb.ModelInferRequest, query: V2Query, owner: Any) -> None:
        """Remember a valid query, if its bytes alone can be recognised."""
        sizes = [len(data) for data in fields.contents]
        if (
            not sizes
            or len(fields.rest) > LONGEST
            or not ANY_BYTES.issuperset(one.datatype for one in query.terms.shape.inputs)
        ):
            return
        if len(self._known) >= MOST:
            # Clients that never repeat themselves cost what they would cost without a memory.
            self._known.clear()
        names = [item.name for item in message.inputs]
        self._known[fields.rest] = (
            query.terms,
            sizes,
            [names.index(one.name) for one in query.terms.shape.inputs],
            owner,
        )
