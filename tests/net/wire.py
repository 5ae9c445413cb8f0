"""HTTP/2 frames as a client writes them, with nothing of the server's code.

Numbers are as in RFC 9113, and bytes may be any at all. Well-formed frames come from hyperframe where a test asks for
them; these may be as wrong as a hostile client's.
"""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR = range(
    7
)
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(7, 12)
ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(2, 7)
DEFAULT_WINDOW, DEFAULT_FRAME = 65_535, 16_384
MAX_WINDOW, MAX_FRAME = 2**31 - 1, 2**24 - 1


def header(length: int, kind: int, flags: int, stream: int) -> bytes:
    return length.to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)


def parse_header(data: bytes, offset: int = 0) -> tuple[int, int, int, int]:
    """(length, type, flags, stream)."""
    length, kind, flags = int.from_bytes(data[offset : offset + 3]), data[offset + 3], data[offset + 4]
    return length, kind, flags, int.from_bytes(data[offset + 5 : offset + 9]) & MAX_WINDOW


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return header(len(payload), kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", name, value) for name, value in values.items()))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))
