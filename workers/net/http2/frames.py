"""Frames of HTTP/2 as bytes (RFC 9113, sections 4, 6 and 7). Pure."""

from __future__ import annotations

import struct

from hpack.hpack import encode_integer

Buffer = bytes | bytearray | memoryview

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: bytes of a frame header
HEADER_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20

# Error codes (section 7)
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0x0, 0x1, 0x2, 0x3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 0x5, 0x6, 0x7, 0x8, 0x9
ENHANCE_YOUR_CALM = 0xB

# Settings (section 6.5.2)
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)
#: bytes of a window and of a frame before SETTINGS say otherwise, and at most
DEFAULT_WINDOW, DEFAULT_FRAME = 65_535, 16_384
MAX_WINDOW, MAX_FRAME = 2**31 - 1, 2**24 - 1

_HEADER = struct.Struct(">HBBBI")
_U32 = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
#: high and low part of the length, type, flags, stream
unpack_header = _HEADER.unpack_from
unpack_u32 = _U32.unpack_from


class Http2Error(Exception):
    """The client broke the protocol, and the connection ends.

    Attributes:
        code: an error code of section 7.
    """

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


def header(length: int, kind: int, flags: int, stream: int) -> bytes:
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    length = len(payload)
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([_SETTING.pack(name, value) for name, value in values.items()]))


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """(identifier, value) of a SETTINGS frame, in order. Raises Http2Error."""
    if len(payload) % 6:
        raise Http2Error(FRAME_SIZE_ERROR, "SETTINGS: must be whole settings of 6 bytes")
    values = list(_SETTING.iter_unpack(payload))
    for name, value in values:
        if name == ENABLE_PUSH and value > 1:
            raise Http2Error(PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH: must be 0 or 1")
        if name == INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise Http2Error(FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE: must be at most {MAX_WINDOW}")
        if name == MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= MAX_FRAME:
            raise Http2Error(PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE: must be from {DEFAULT_FRAME} to {MAX_FRAME}")
    return values


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _U32.pack(increment))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _U32.pack(code))


def goaway(last: int, code: int, message: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _U32.pack(last) + _U32.pack(code) + message.encode())


def unpad(flags: int, payload: Buffer) -> Buffer:
    """The payload of a DATA or HEADERS frame without padding. Raises Http2Error."""
    if not flags & PADDED:
        return payload
    return payload[1 : len(payload) - check_padding(payload[0] if payload else 0, len(payload))]


def check_padding(padding: int, length: int) -> int:
    """Return the padding's length in a payload of that length. Raises Http2Error."""
    if padding >= length:
        raise Http2Error(PROTOCOL_ERROR, "padding: is as long as the frame, or longer")
    return padding


def literal(name: bytes, value: bytes) -> bytes:
    """A header field outside of the dynamic table (RFC 7541, section 6.2.2)."""
    return b"\x00" + encode_integer(len(name), 7) + name + encode_integer(len(value), 7) + value
