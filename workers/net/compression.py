"""gzip and deflate of HTTP bodies and gRPC messages, limited in both directions.

Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

#: names in ``content-encoding`` and ``grpc-encoding``
ENCODINGS = (b"identity", b"gzip", b"deflate")
#: decompressed bytes that do not hold up the event loop
INLINE_BYTES = 64 * 1024
#: bytes of responses that are worth compressing and do not hold up the event loop
COMPRESS_FROM, COMPRESS_TO = 1024, 1024 * 1024
#: window sizes of zlib, which select the format
_GZIP, _ZLIB, _RAW = 31, 15, -15


class CompressionError(ValueError):
    """Bytes that cannot be decompressed. ``too_large``: they would exceed the limit."""

    def __init__(self, message: str, too_large: bool = False):
        super().__init__(message)
        self.too_large = too_large


def decompress(encoding: bytes, data: Buffer, limit: int) -> Buffer:
    """Undo one of :data:`ENCODINGS`.

    Raises:
        CompressionError: not of that encoding, cut off, followed by something, or more than ``limit`` bytes.
    """
    if encoding == b"identity":
        return data
    # "deflate" means zlib's format, but some clients send the bare stream.
    windows = (_GZIP,) if encoding == b"gzip" else (_ZLIB, _RAW)
    problem = "cut off"
    for window in windows:
        reader = zlib.decompressobj(window)
        try:
            plain = reader.decompress(data, limit + 1)
        except zlib.error as error:
            problem = str(error)
            continue
        if len(plain) > limit:
            raise CompressionError(f"at most {limit} bytes once decompressed", True)
        if reader.eof and not reader.unused_data:
            return plain
        problem = "something follows its end" if reader.eof else "cut off"
    raise CompressionError(f"not valid {encoding.decode()}: {problem}")


def choose(accept: bytes, size: int) -> bytes | None:
    """Return the encoding for a response of ``size`` bytes; None: no encoding.

    Args:
        accept: the client's ``accept-encoding``.
    """
    if not accept or not COMPRESS_FROM <= size <= COMPRESS_TO:
        return None
    for item in accept.lower().split(b","):
        name, _, quality = item.partition(b";")
        name = name.strip()
        if name in (b"gzip", b"deflate") and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00"):
            return name
    return None


def compress(encoding: bytes, parts: Sequence[Buffer]) -> list[bytes]:
    """The parts as one stream."""
    writer = zlib.compressobj(1, zlib.DEFLATED, _GZIP if encoding == b"gzip" else _ZLIB)
    return [*(writer.compress(part) for part in parts), writer.flush()]
