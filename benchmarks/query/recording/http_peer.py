"""The load generator's HTTP connections."""

from __future__ import annotations

import asyncio

from .book import Ended, Query
from .records import BROKEN, HTTP


class HttpPeer(asyncio.Protocol):
    """One keep-alive connection of HTTP/1.1. Understands what servers of V2 with binary outputs send."""

    def __init__(self, ended: Ended):
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._query: Query | None = None
        self._buffer = b""

    def connection_made(self, transport) -> None:
        self._transport = transport

    def send(self, query: Query, request: bytes) -> None:
        self._query = query
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        query = self._query
        data = self._buffer + data if self._buffer else data
        if query is None:
            # Nothing was asked; whatever this is, the connection is of no more use.
            self._transport.abort()
            return
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            return
        head = data[:end].lower()
        size = int(_value(head, b"\r\ncontent-length: ") or 0)
        if len(data) < end + 4 + size:
            self._buffer = data
            return
        self._buffer, self._query = b"", None
        query.status = int(data[9:12])
        if query.status == 200:
            read_answer(query, data, end + 4)
        else:
            query.retry = b"\r\nretry-after: " in head
            if query.status != HTTP.refused:
                query.note = data[:400].decode("latin-1")
        reusable = b"\r\nconnection: close" not in head and len(data) == end + 4 + size
        if not reusable:
            self._transport.close()
        self._ended(self, query, reusable)

    def connection_lost(self, error: Exception | None) -> None:
        query, self._query = self._query, None
        if query is not None:
            query.fail(BROKEN, f"connection lost: {error}")
        self._ended(self, query, False)

    def abandon(self) -> None:
        self._query = None
        self._transport.abort()

    async def close(self) -> None:
        self._transport.close()


def read_answer(query: Query, data: bytes, body: int) -> None:
    """Take an answer of V2 with one binary output apart, as far as it is of interest."""
    size = int(_value(data, b'"binary_data_size":', body) or 0)
    query.right = data[len(data) - size :] if size else b""
    query.queue_ms = float(_value(data, b'"queue_ms":', body) or 0.0)
    query.batch = int(_value(data, b'"batch_size":', body) or 0)
    query.variant = _value(data, b'"variant":', body).strip(b'"')


def _value(data: bytes, name: bytes, start: int = 0) -> bytes:
    """What follows a name, up to the next mark that ends a value; empty where the name is not there."""
    at = data.find(name, start)
    if at < 0:
        return b""
    at += len(name)
    end = at
    while end < len(data) and data[end] not in b",}\r\n":
        end += 1
    return data[at:end]
