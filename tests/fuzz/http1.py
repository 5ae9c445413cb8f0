"""Requests over HTTP/1.1.

They are the same in any pieces, and nothing of them is left once they are parsed or rejected.
"""

from __future__ import annotations

from tests.net.test_parsers import LIMITS, Requests
from workers.net.http1.parser import KnownHeads

STATUSES = {400, 413, 431, 501, 505}


def seeds() -> list[bytes]:
    head = b"POST /a?b=c HTTP/1.1\r\nhost: a\r\n"
    return [
        b"\x00" + b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n" * 3,
        b"\x07" + (head + b"content-length: 5\r\n\r\nabcde") * 2,
        b"\x01" + head + b"transfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\ntrailer: x\r\n\r\n",
        b"\x20" + head + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 3\r\n\r\nabcGET /no HTTP/1.1\r\n\r\n",
        b"\x03" + b"POST http://a/b HTTP/1.0\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"\x05" + head + b"content-length: 99999999999999999\r\n\r\n" + b"\r\n" * 20,
        b"\x05" + head + b"expect: 100-continue\r\ncontent-length: 1\r\nx: a\r\nX: b\r\n\r\nz",
    ]


def fed(data: bytes, size: int, known: KnownHeads, direct: bool) -> Requests:
    sink = Requests(known, direct)
    for offset in range(0, len(data), size):
        sink.feed(data[offset : offset + size])
    return sink


def check(data: bytes) -> None:
    if not data:
        return
    cut, data = data[0] + 1, data[1:]
    known = KnownHeads(LIMITS)
    whole = fed(data, len(data) or 1, known, False)
    for event in whole.events:
        assert len(event) > 1 or event == ("rejected",) or event[0] in STATUSES, event
    # Byte by byte only where that is soon done.
    byte = 1 if len(data) < 100 else 7
    for size, direct in ((cut, False), (cut, True), (byte, False)):
        found = fed(data, size, known, direct)
        assert found.events == whole.events, size
        assert found.parser.stopped == whole.parser.stopped
    parser = whole.parser
    if parser.stopped or parser.head is None:
        assert (bytes(parser._body), parser._place, parser.rest) == (b"", None, b"")
    parser.close()
    assert parser.head is None
    assert parser._sink is None
