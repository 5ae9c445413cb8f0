"""gzip and deflate of HTTP bodies and gRPC messages, limited in both directions. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

#: names in ``content-encoding`` and ``grpc-encoding``
ENCODINGS = (b"identity", b"gzip", b"deflate")
#: the same under an older name (RFC 9110, section 8.4.1.3)
_ALIASES = {b"x-gzip": b"gzip"}
#: members of a gzip file, and bytes of it that are looked at in one piece: what follows a member is copied each time
MOST_MEMBERS, PIECE_BYTES = 4096, 16 * 1024
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


def named(encoding: bytes) -> bytes:
    """Return the name of an encoding in :data:`ENCODINGS`; others in lower case."""
    encoding = encoding.strip().lower()
    return _ALIASES.get(encoding, encoding)


def decompress(encoding: bytes, data: Buffer, limit: int) -> Buffer:
    """Undo one of :data:`ENCODINGS`.

    Raises:
        CompressionError: not of that encoding, cut off, followed by something, or more than ``limit`` bytes.
    """
    if encoding == b"identity":
        return data
    if encoding == b"gzip":
        return _gunzip(data, limit)
    problem = "cut off"
    # "deflate" means zlib's format, but some clients send the bare stream.
    for window in (_ZLIB, _RAW):
        reader = zlib.decompressobj(window)
        try:
            plain = reader.decompress(data, limit + 1)
        except zlib.error as error:
            problem = str(error)
            continue
        if len(plain) > limit:
            raise _too_large(limit)
        if reader.eof and not reader.unused_data:
            return plain
        problem = "something follows its end" if reader.eof else "cut off"
    raise CompressionError(f"not valid {encoding.decode()}: {problem}")


def _gunzip(data: Buffer, limit: int) -> bytes:
    view, offset, size, left = memoryview(data), 0, len(data), limit
    plain: list[bytes] = []
    for _ in range(MOST_MEMBERS):
        begin, reader = offset, zlib.decompressobj(_GZIP)
        while not reader.eof:
            if offset == size:
                raise CompressionError("not valid gzip: cut off")
            piece = view[offset : offset + PIECE_BYTES]
            try:
                plain.append(reader.decompress(piece, left + 1))
            except zlib.error as error:
                problem = "something follows its end" if 0 < begin == offset else error
                raise CompressionError(f"not valid gzip: {problem}") from None
            left -= len(plain[-1])
            if left < 0:
                raise _too_large(limit)
            offset += len(piece) - len(reader.unused_data)
        if offset == size:
            return plain[0] if len(plain) == 1 else b"".join(plain)
    raise CompressionError(f"not valid gzip: at most {MOST_MEMBERS} members are taken")


def _too_large(limit: int) -> CompressionError:
    return CompressionError(f"at most {limit} bytes once decompressed", True)


def choose(accept: bytes, size: int) -> bytes | None:
    """The encoding for a response to a client that accepts these; None: none."""
    if not accept or not COMPRESS_FROM <= size <= COMPRESS_TO:
        return None
    for item in accept.lower().split(b","):
        name, _, quality = item.partition(b";")
        name = named(name)
        if name in (b"gzip", b"deflate") and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00"):
            return name
    return None


def compress(encoding: bytes, parts: Sequence[Buffer]) -> list[bytes]:
    writer = zlib.compressobj(1, zlib.DEFLATED, _GZIP if encoding == b"gzip" else _ZLIB)
    return [*(writer.compress(part) for part in parts), writer.flush()]
