"""Content-Encoding of requests and responses: gzip and deflate, bounded both ways."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from workers.gateway.errors import Invalid, TooLarge, UnsupportedEncoding
from workers.protocol.tensors import Buffer

_GZIP, _ZLIB, _RAW = 31, 15, -15
KNOWN = (b"identity", b"gzip", b"deflate")
#: responses that are worth compressing, and that do not hold up the loop for long (bytes)
COMPRESS_FROM, COMPRESS_TO = 1024, 1024 * 1024


def check(encoding: bytes) -> None:
    """Raises UnsupportedEncoding."""
    if encoding not in KNOWN:
        raise UnsupportedEncoding(
            f"Content-Encoding: {encoding.decode('latin-1')[:80]!r} is not supported; gzip, deflate and identity are"
        )


def decompress(encoding: bytes, body: Buffer, limit: int) -> Buffer:
    """A request body as it was before compression, at most ``limit`` bytes.

    Raises:
        UnsupportedEncoding: an encoding that is not known.
        Invalid: not of that encoding, cut off, or something follows it.
        TooLarge: more than ``limit`` bytes.
    """
    check(encoding)
    if encoding == b"identity":
        return body
    # "deflate" means zlib's format, but some clients send the bare stream.
    windows = (_GZIP,) if encoding == b"gzip" else (_ZLIB, _RAW)
    problem = "cut off"
    for window in windows:
        reader = zlib.decompressobj(window)
        try:
            data = reader.decompress(body, limit + 1)
        except zlib.error as error:
            problem = str(error)
            continue
        if len(data) > limit:
            raise TooLarge(f"body: at most {limit} bytes once decompressed")
        if reader.eof and not reader.unused_data:
            return data
        problem = "something follows its end" if reader.eof else "cut off"
    raise Invalid(f"body: not valid {encoding.decode()}: {problem}")


def choose(accept: bytes, size: int) -> bytes | None:
    """The encoding for a response of ``size`` bytes to a client that sent ``Accept-Encoding: accept``; None: none."""
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
