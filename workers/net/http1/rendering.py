"""Answers as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from .messages import Buffer, Headers

STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
#: what is smaller costs less to copy than to hand over in pieces
JOIN_BELOW = 64 * 1024


def render(
    status: int, date: bytes, headers: Headers, body: Sequence[Buffer], afterwards: bytes, head_only: bool
) -> list[Buffer]:
    """A response, as one buffer where it is small. ``date`` and ``afterwards``: whole header lines, or nothing;
    ``head_only``: without its body, whose length is told."""
    size = sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in body)
    head = bytearray(STATUS_LINES[status])
    head += date
    for name, value in headers:
        head += name + b": " + value + b"\r\n"
    head += b"content-length: %d\r\n" % size
    head += afterwards + b"\r\n"
    if head_only:
        body = ()
    if size >= JOIN_BELOW:
        return [head, *body]
    for part in body:
        head += part
    return [head]
