"""A cache of parsed HTTP requests, keyed by their JSON without the id. Pure.

Clients repeat the same JSON with new tensors behind it. Where all inputs are binary data, only their sizes can be
wrong; everything else stands in the JSON, and the same JSON means the same.
"""

from __future__ import annotations

import msgspec

from workers.protocol.frames import Buffer
from workers.protocol.specs import Signature

from . import http
from .query import ANY_BYTES, COPY_BYTES, LONGEST, MAX_ID, MOST, Terms, V2Query


class _Named(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b"")


_read_id = msgspec.json.Decoder(_Named).decode
_read_string = msgspec.json.Decoder(str).decode


class HttpReader:
    """Reads the queries of one application; as :func:`.http.parse`, but faster."""

    def __init__(self, signature: Signature, max_rows: int):
        self._signature = signature
        self._max_rows = max_rows
        self._any_bytes = ANY_BYTES.issuperset(spec.datatype for spec in signature.inputs)
        #: terms, and where the data of each input begins and ends behind the JSON: by the whole JSON where it has no
        #: id, else by what stands before and behind the id
        self._known: dict[bytes | tuple[bytes, bytes], tuple[Terms, list[tuple[int, int]]]] = {}

    def parse(self, body: Buffer, header_length: int | None) -> V2Query:
        if header_length is None or header_length > LONGEST or not self._any_bytes:
            return http.parse(body, header_length, self._signature, self._max_rows)
        key, id = bytes(body[:header_length]), ""
        known = self._known.get(key)
        if known is None:
            key, id = _without_id(key)
            known = self._known.get(key)
        if known is None or len(body) != header_length + known[0].nbytes or len(id) > MAX_ID:
            return self._remember(key, body, header_length)
        terms, places = known
        view = body if terms.nbytes <= COPY_BYTES else memoryview(body)
        if len(places) == 1:
            return V2Query(id, terms, (view[header_length:],), terms.latency_s)
        parts = tuple([view[header_length + begin : header_length + end] for begin, end in places])
        return V2Query(id, terms, parts, terms.latency_s)

    def _remember(self, key: bytes | tuple[bytes, bytes], body: Buffer, header_length: int) -> V2Query:
        query, places = http.read(body, header_length, self._signature, self._max_rows)
        if len(places) == len(query.parts):
            if len(self._known) >= MOST:
                # Clients that never repeat themselves cost what they would cost without a memory.
                self._known.clear()
            self._known[key] = query.terms, [places[header.name] for header in query.terms.shape.inputs]
        return query


def _without_id(text: bytes) -> tuple[bytes | tuple[bytes, bytes], str]:
    """A key that JSON texts share which differ in their id only, and the id."""
    try:
        encoded = bytes(_read_id(text).id)
        if encoded:
            # If these bytes come first somewhere else than where the id stands, only this very text has the same bytes
            # around them and the same id.
            before, _, behind = text.partition(encoded)
            return (before, behind), _read_string(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return text, ""
