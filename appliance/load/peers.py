"""Connections over HTTP/1.1, each with at most one query in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from .records import BROKEN, HTTP


class End(NamedTuple):
    """The end of a query.

    Attributes:
        status: of the protocol, or one of :mod:`.records`.
        output: bytes of the answer's output; None: no answer.
        note: the error in words, where it is neither an answer nor a refusal.
    """

    status: int
    output: bytes | None = None
    variant: str = ""
    queue_ms: float = 0.0
    batch: int = 0
    accuracy: float = 0.0
    retry: bool = False
    note: str = ""
    id: str = ""
    device: str = ""
    model_ms: float = 0.0


class Peer(Protocol):
    """A connection; ``request``, ``due`` and ``sent`` are of the query in flight."""

    request: int
    due: float
    sent: float

    def send(self, request: bytes) -> None: ...

    def abandon(self) -> None:
        """Close it though its query is in flight."""

    async def close(self) -> None: ...


#: Called at each end: (connection; end, None where an idle connection was lost; whether it can be used again).
Ended = Callable[[Peer, End | None, bool], None]


class _Parameters(msgspec.Struct):
    variant: str = ""
    queue_ms: float = 0.0
    batch_size: int = 0
    accuracy: float = 0.0
    device: str = ""
    model_ms: float = 0.0


class _Answer(msgspec.Struct):
    id: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


_decode = msgspec.json.Decoder(_Answer).decode


class HttpPeer(asyncio.Protocol):
    """A keep-alive connection for V2 with one binary output, or bare bodies."""

    def __init__(self, ended: Ended):
        self.request, self.due, self.sent = 0, 0.0, 0.0
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._asked = self._over = False
        self._buffer = b""

    def connection_made(self, transport) -> None:
        self._transport = transport

    def send(self, request: bytes) -> None:
        self._asked = True
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self._asked:
            self._unasked()
            return
        data = self._buffer + data if self._buffer else data
        at = data.find(b"\r\n\r\n")
        head = data[:at].lower()
        size = _number(head, b"\r\ncontent-length: ")
        if at < 0 or len(data) < at + 4 + size:
            self._buffer = data
            return
        self._buffer, self._asked = b"", False
        more = len(data) > at + 4 + size
        reusable = b"\r\nconnection: close" not in head and not more
        if not reusable:
            self._over = True
            self._transport.close()
        self._ended(self, _http_end(head, data[at + 4 : at + 4 + size]), reusable)
        if more:
            self._unasked()

    def _unasked(self) -> None:
        """Another answer than that of the query in flight."""
        self._over = True
        self._ended(self, End(BROKEN, note="an answer that nobody asked for"), False)
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._over:
            self._ended(self, End(BROKEN, note=f"connection lost: {error}") if self._asked else None, False)

    def abandon(self) -> None:
        self._over = True
        self._transport.abort()

    async def close(self) -> None:
        self._over = True
        self._transport.close()


def _http_end(head: bytes, body: bytes) -> End:
    status = int(head[9:12])
    if status == HTTP.answered:
        header = _number(head, b"\r\ninference-header-content-length: ")
        answer = _decode(body[:header]) if header else _Answer()
        found = answer.parameters
        values = found.variant, found.queue_ms, found.batch_size, found.accuracy
        return End(status, body[header:], *values, id=answer.id, device=found.device, model_ms=found.model_ms)
    note = "" if status == HTTP.refused else (head + b" " + body)[:400].decode("latin-1")
    return End(status, retry=b"\r\nretry-after: " in head, note=note)


def _number(head: bytes, name: bytes) -> int:
    """The number that follows a name; 0 where the name is not there."""
    at = head.find(name)
    if at < 0:
        return 0
    at += len(name)
    end = head.find(b"\r", at)
    return int(head[at : end if end >= 0 else None])
