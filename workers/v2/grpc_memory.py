"""Queries over gRPC that are spelled as others before them: what was found out about those is not found out again.

Clients send the same fields with ever new raw contents behind them. Where all inputs have raw contents, and these stand
at the message's end, all that their bytes can get wrong is their number; everything else is in front of them, and the
same bytes mean the same. An id that stands between the model's name and the rest is cut out first: it may stand between
any two fields of a message without changing what the others mean
(https://protobuf.dev/programming-guides/encoding/#order).
"""

from __future__ import annotations

import itertools
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from workers.protocol.frames import Buffer

from . import grpc
from .query import Query, Terms, V2Error

#: spellings that are remembered, and the longest one that is
MOST, LONGEST = 1024, 4096
#: spellings' lengths that are tried for messages of one length
TRIED = 4
#: of so many bytes a copy costs less than a view
SMALL = 4096
#: datatypes whose elements cannot take every value: their bytes are looked at each time
_LOOKED_AT = frozenset({"BOOL", "BYTES"})

_NAME, _VERSION, _ID = (
    pb.ModelInferRequest.DESCRIPTOR.fields_by_name[name].number << 3 | 2
    for name in ("model_name", "model_version", "id")
)


class _Known:
    """A spelling. ``places``: for each input in the signature's order, where its data begins and ends; ``between``:
    where bytes begin and end that stand between two contents, and which: all counted from where the spelling ends.
    ``size``: bytes from there to the message's end."""

    __slots__ = ("between", "owner", "places", "size", "terms")

    def __init__(
        self,
        terms: Terms,
        places: tuple[tuple[int, int], ...],
        between: tuple[tuple[int, int, bytes], ...],
        owner: Any,
    ):
        self.terms = terms
        self.places = places
        self.size = max(end for _, end in places)
        self.between = between
        self.owner = owner


class Memory:
    """Spellings of queries that were found right, each with what its reader wants to know of it again."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}
        #: by length of a message without its id: lengths of the spellings that such messages begin with
        self._lengths: dict[int, tuple[int, ...]] = {}

    def find(self, data: Buffer) -> tuple[Query, Any] | None:
        """A serialised query, and what was remembered with the first one that was spelled so; None: it is spelled as
        none that is remembered."""
        for length in self._lengths.get(len(data), ()):
            known = self._known.get(bytes(data[:length]))
            if known is not None:
                return _same(known, "", data, length)
        start, end = _id_place(data)
        if end == start:
            return None
        for length in self._lengths.get(len(data) - end + start, ()):
            length += end - start
            known = self._known.get(bytes(data[:start]) + bytes(data[end:length])) if length > end else None
            if known is not None:
                try:
                    id = str(data[start + 2 : end], "utf-8")
                except UnicodeDecodeError:
                    return None
                return _same(known, id, data, length)
        return None

    def remember(self, data: Buffer, query: Query, owner: Any) -> None:
        """Take the spelling of a query that was read for known, if it is one that can be told again by its bytes."""
        if any(header.datatype in _LOOKED_AT for header in query.tensors):
            return
        start, end = _id_place(data)
        spelling = _spelling(data, start, end)
        if spelling is None:
            return
        message, text, pieces = spelling
        order = {header.name: place for place, header in enumerate(query.tensors)}
        if message.id or len(pieces) != len(order) or len(message.inputs) != len(order):
            return
        first = pieces[0][0]
        places = [(0, 0)] * len(order)
        for item, (begin, finish) in zip(message.inputs, pieces, strict=True):
            places[order[item.name]] = begin - first, finish - first
        between = tuple(
            (before - first, begin - first, bytes(data[before:begin]))
            for (_, before), (begin, _) in itertools.pairwise(pieces)
        )
        if len(self._known) >= MOST:
            # Whoever never spells alike twice costs what it would cost without a memory.
            self._known.clear()
            self._lengths.clear()
        self._known[text] = _Known(query.terms, tuple(places), between, owner)
        whole = len(data) - end + start
        lengths = self._lengths.get(whole, ())
        if len(text) not in lengths:
            self._lengths[whole] = (len(text), *lengths[: TRIED - 1])


def _spelling(data: Buffer, start: int, end: int) -> tuple[pb.ModelInferRequest, bytes, list[tuple[int, int]]] | None:
    """The message without the id at ``start`` and without contents, its bytes up to its first contents, and where its
    contents begin and end; None where they do not stand together at its end."""
    try:
        pieces = [(begin, finish) for _, begin, finish in grpc.raw_places(data)]
    except V2Error:
        # Of a small message nobody has counted the fields.
        return None
    if not pieces or pieces[-1][1] != len(data) or pieces[0][0] > LONGEST + end - start:
        return None
    for (_, before), (begin, _) in itertools.pairwise(pieces):
        # No more than a tag and a length.
        if begin - before > 11:
            return None
    first, last = pieces[0]
    text = bytes(data[:start]) + bytes(data[end:first])
    fields = grpc.parsed(text + bytes(last - first))
    return (fields, text, pieces) if len(fields.raw_input_contents) == 1 else None


def _same(known: _Known, id: str, data: Buffer, length: int) -> tuple[Query, Any] | None:
    """A query as one that is known, with as much data; None: it has more or less."""
    if len(data) - length != known.size:
        # Another spelling is as long, and messages of this length begin with that.
        return None
    for before, begin, gap in known.between:
        if data[length + before : length + begin] != gap:
            return None
    terms = known.terms
    view = data if terms.nbytes <= SMALL else memoryview(data)
    parts = tuple([view[length + begin : length + end] for begin, end in known.places])
    return Query(id, terms, parts, terms.latency_s), known.owner


def _id_place(data: Buffer) -> tuple[int, int]:
    """Where the id's field begins and ends if it follows the model's name and version, each of less than 128 bytes;
    two equal numbers if it does not."""
    try:
        offset = 0
        if data[0] == _NAME and data[1] < 128:
            offset = 2 + data[1]
        if data[offset] == _VERSION and data[offset + 1] < 128:
            offset += 2 + data[offset + 1]
        if data[offset] == _ID and data[offset + 1] < 128 and offset + 2 + data[offset + 1] <= len(data):
            return offset, offset + 2 + data[offset + 1]
    except IndexError:
        pass
    return 0, 0
