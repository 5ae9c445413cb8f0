"""Queries over HTTP that are spelled as others before them: what was found out about those is not found out again.

Clients send the same JSON with ever new tensors behind it. Where all inputs are binary data, all that their bytes can
get wrong is their number; everything else is in the JSON, and the same JSON means the same. (Of a key given twice the
last one counts, as ever; here the first ones' types are not looked at.)
"""

from __future__ import annotations

import msgspec

from . import v2
from .specs import Signature
from .tensors import Buffer

#: spellings that are remembered, and the longest one that is
MOST, LONGEST = 1024, 4096
#: of so many bytes a copy costs less than a view
SMALL = 4096
#: datatypes whose elements cannot take every value: their bytes are looked at each time
_LOOKED_AT = frozenset({"BOOL", "BYTES"})

_EMPTY = msgspec.Raw(b"")


class _Spelled(msgspec.Struct):
    """A request whose JSON is told apart only as far as its id goes."""

    inputs: msgspec.Raw
    id: str = ""
    parameters: msgspec.Raw = _EMPTY
    outputs: msgspec.Raw = _EMPTY


_decode = msgspec.json.Decoder(_Spelled).decode


class Reader:
    """Reads the queries of one application; as :func:`~.v2.parse`, only sooner."""

    def __init__(self, signature: Signature, max_rows: int):
        self._signature = signature
        self._max_rows = max_rows
        self._order = {spec.name: place for place, spec in enumerate(signature.inputs)}
        self._looked_at = any(spec.datatype in _LOOKED_AT for spec in signature.inputs)
        #: by the whole JSON where it has no id, and by its parts: terms, and for each input where its data begins and
        #: ends behind the JSON
        self._whole: dict[bytes, tuple[v2.Terms, tuple[tuple[int, int], ...]]] = {}
        self._parts: dict[tuple[bytes, ...], tuple[v2.Terms, tuple[tuple[int, int], ...]]] = {}

    def parse(self, body: Buffer, header_length: int | None) -> v2.Query:
        """See :func:`~.v2.parse`.

        Raises:
            V2Error: anything that a client can get wrong.
        """
        if header_length is None or header_length > LONGEST or self._looked_at:
            return v2.parse(body, header_length, self._signature, self._max_rows)
        text = bytes(body[:header_length])
        known = self._whole.get(text)
        if known is not None and len(body) == header_length + known[0].nbytes:
            return _same(known, "", body, header_length)
        return self._by_parts(text, body, header_length)

    def _by_parts(self, text: bytes, body: Buffer, header_length: int) -> v2.Query:
        try:
            spelled = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return v2.parse(body, header_length, self._signature, self._max_rows)
        key = (bytes(spelled.parameters), bytes(spelled.inputs), bytes(spelled.outputs))
        known = self._parts.get(key)
        if known is not None and len(spelled.id) <= v2.MAX_ID and len(body) == header_length + known[0].nbytes:
            return _same(known, spelled.id, body, header_length)
        query = v2.parse(body, header_length, self._signature, self._max_rows)
        known = self._places(text, query)
        if known is not None:
            _remember(self._parts, key, known)
            if not query.id:
                _remember(self._whole, text, known)
        return query

    def _places(self, text: bytes, query: v2.Query) -> tuple[v2.Terms, tuple[tuple[int, int], ...]] | None:
        """Where the data of a query that was read lies; None where some of it is in the JSON."""
        given = v2.binary_sizes(text)
        if given is None:
            return None
        places: list[tuple[int, int]] = [(0, 0)] * len(given)
        offset = 0
        for name, size in given:
            places[self._order[name]] = offset, offset + size
            offset += size
        return query.terms, tuple(places)


def _same(known: tuple[v2.Terms, tuple[tuple[int, int], ...]], id: str, body: Buffer, header_length: int) -> v2.Query:
    """A query as one that is known, with as much data."""
    terms, places = known
    view = body if terms.nbytes <= SMALL else memoryview(body)
    if len(places) == 1:
        return v2.Query(id, terms, (view[header_length:],), terms.latency_s)
    parts = tuple([view[header_length + start : header_length + end] for start, end in places])
    return v2.Query(id, terms, parts, terms.latency_s)


def _remember(memory: dict, key, value) -> None:
    if len(memory) >= MOST:
        # Whoever never spells alike twice costs what it would cost without a memory.
        memory.clear()
    memory[key] = value
