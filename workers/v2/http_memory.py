"""Queries over HTTP that are spelled as others before them: what was found out about those is not found out again.

Clients send the same JSON with ever new tensors behind it, and often a new id in it. Where all inputs are binary data,
all that their bytes can get wrong is their number; everything else is in the JSON, and the same JSON means the same.
JSON that differs in nothing but the string that is its id does so too, but for the id.
"""

from __future__ import annotations

from workers.protocol.frames import Buffer
from workers.protocol.specs import Signature

from . import http, spelling
from .query import MAX_ID, Query, Terms

#: spellings that are remembered, and the longest one that is
MOST, LONGEST = 1024, 4096
#: of so many bytes a copy costs less than a view
SMALL = 4096
#: datatypes whose elements cannot take every value: their bytes are looked at each time
_LOOKED_AT = frozenset({"BOOL", "BYTES"})

#: terms, and for each input where its data begins and ends behind the JSON
_Known = tuple[Terms, tuple[tuple[int, int], ...]]


class Reader:
    """Reads the queries of one application; as :func:`~.http.parse`, only sooner."""

    def __init__(self, signature: Signature, max_rows: int):
        self._signature = signature
        self._max_rows = max_rows
        self._order = {spec.name: place for place, spec in enumerate(signature.inputs)}
        self._looked_at = any(spec.datatype in _LOOKED_AT for spec in signature.inputs)
        #: by the whole JSON where it has no id, and by what stands before and behind the id
        self._whole: dict[bytes, _Known] = {}
        self._around: dict[tuple[bytes, bytes], _Known] = {}
        #: by the parts that the terms come from, so that queries that are alike share them wherever these stand
        self._alike: dict[tuple[bytes, bytes, bytes], _Known] = {}

    def parse(self, body: Buffer, header_length: int | None) -> Query:
        """See :func:`~.http.parse`.

        Raises:
            V2Error: anything that a client can get wrong.
        """
        if header_length is None or header_length > LONGEST or self._looked_at:
            return http.parse(body, header_length, self._signature, self._max_rows)
        text = bytes(body[:header_length])
        known = self._whole.get(text)
        if known is not None and len(body) == header_length + known[0].nbytes:
            return _same(known, "", body, header_length)
        return self._but_for_its_id(text, body, header_length)

    def _but_for_its_id(self, text: bytes, body: Buffer, header_length: int) -> Query:
        around, name = None, ""
        try:
            spelled = bytes(spelling.named(text).id)
            if spelled:
                name = spelling.string(spelled)
                # If these bytes come first somewhere else than where the id stands, nothing but this very text has the
                # same around them and the same id.
                before, _, behind = text.partition(spelled)
                around = before, behind
        except spelling.MISTAKES:
            return http.parse(body, header_length, self._signature, self._max_rows)
        known = self._around.get(around) if around is not None else None
        if known is not None and len(name) <= MAX_ID and len(body) == header_length + known[0].nbytes:
            return _same(known, name, body, header_length)
        query = http.parse(body, header_length, self._signature, self._max_rows)
        known = self._places(text, query)
        if known is not None:
            parts = spelling.spelled(text)
            alike = bytes(parts.parameters), bytes(parts.inputs), bytes(parts.outputs)
            known = self._alike.get(alike, known)
            query.terms = known[0]
            _remember(self._alike, alike, known)
            if around is None:
                _remember(self._whole, text, known)
            else:
                _remember(self._around, around, known)
        return query

    def _places(self, text: bytes, query: Query) -> _Known | None:
        """Where the data of a query that was read lies; None where some of it is in the JSON."""
        given = http.binary_sizes(text)
        if given is None:
            return None
        places: list[tuple[int, int]] = [(0, 0)] * len(given)
        offset = 0
        for name, size in given:
            places[self._order[name]] = offset, offset + size
            offset += size
        return query.terms, tuple(places)


def _same(known: _Known, id: str, body: Buffer, header_length: int) -> Query:
    """A query as one that is known, with as much data."""
    terms, places = known
    view = body if terms.nbytes <= SMALL else memoryview(body)
    if len(places) == 1:
        return Query(id, terms, (view[header_length:],), terms.latency_s)
    parts = tuple([view[header_length + start : header_length + end] for start, end in places])
    return Query(id, terms, parts, terms.latency_s)


def _remember(memory: dict, key, value) -> None:
    if len(memory) >= MOST and key not in memory:
        # Whoever never spells alike twice costs what it would cost without a memory.
        memory.clear()
    memory[key] = value
