"""Request headers of one connection, decoded by hpack and remembered by block.

See RFC 7541, and section 8 of RFC 9113. Clients repeat the headers of their requests in a few bytes that refer to a
table that both sides keep. A block that leaves this table unchanged means the same until another block changes it.
"""

from __future__ import annotations

import re
from typing import Any

import hpack
import msgspec

from workers.net.limits import Http2Limits

from .frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2Error

#: fields about a connection of HTTP/1.1 (RFC 9113, section 8.2.2)
_CONNECTION_SPECIFIC = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
#: bytes that names and values must not contain (RFC 9113, section 8.2.1)
_BAD_NAME = re.compile(rb"[^!-9;-@\[-~]").search
_BAD_VALUE = re.compile(rb"[\0\r\n]|^[ \t]|[ \t]\Z").search


class MalformedHeaders(ValueError):
    """Headers that no request may have. The stream ends, and the connection goes on."""


class HeaderList(msgspec.Struct, eq=False):
    """Headers of a request.

    Attributes:
        fields: values by lower-case name; those of a repeated field are joined by a comma.
        state: the application's own; lists are shared by requests with equal blocks.
        block: that it was decoded from, if :meth:`HeaderDecoder.remember` may take it; else empty.
    """

    fields: dict[bytes, bytes]
    block: bytes
    state: Any = None


class HeaderDecoder:
    """Decodes the header blocks of one connection in the order in which they arrive."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._hpack = hpack.Decoder(max_header_list_size=limits.header_bytes)
        self._known: dict[bytes, HeaderList] = {}

    def decode(self, block: bytes) -> HeaderList:
        """The request headers of a block.

        Raises:
            MalformedHeaders: no request may have these.
            Http2Error: the block cannot be decoded, or is too long.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        limits = self._limits
        if len(block) > limits.header_bytes:
            raise Http2Error(ENHANCE_YOUR_CALM, f"headers: at most {limits.header_bytes} bytes")
        table = self._hpack.header_table
        entries = table.dynamic_entries
        before, latest = (table.maxsize, len(entries)), next(iter(entries), None)
        try:
            fields = self._hpack.decode(block, raw=True)
        except hpack.OversizedHeaderListError:
            raise Http2Error(ENHANCE_YOUR_CALM, f"headers: at most {limits.header_bytes} bytes") from None
        except (hpack.HPACKError, IndexError) as error:
            raise Http2Error(COMPRESSION_ERROR, f"headers: {error}") from None
        # New entries come first.
        changed = (table.maxsize, len(entries)) != before or next(iter(entries), None) is not latest
        if changed:
            self._known.clear()
        if len(fields) > limits.fields:
            raise MalformedHeaders(f"headers: at most {limits.fields} fields")
        return HeaderList(_validate(fields), b"" if changed or len(block) > limits.known_block_bytes else block)

    def remember(self, headers: HeaderList) -> None:
        """Remember the headers of the latest block: its request was accepted."""
        block, limits = headers.block, self._limits
        if not block:
            return
        headers.block = b""
        if sum(len(name) + len(value) for name, value in headers.fields.items()) <= limits.known_list_bytes:
            if len(self._known) >= limits.known_blocks:
                self._known.clear()
            self._known[block] = headers


def _validate(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    regular = False
    for name, value in fields:
        name, value = bytes(name), bytes(value)
        if name.startswith(b":"):
            if regular or name not in _PSEUDO or name in values:
                raise MalformedHeaders(f"header {name[:80]!r}: is not known, out of place or repeated")
        else:
            regular = True
            if not name or _BAD_NAME(name) or name in _CONNECTION_SPECIFIC:
                raise MalformedHeaders(f"header {name[:80]!r}: not allowed in HTTP/2")
            if name == b"te" and value != b"trailers":
                raise MalformedHeaders("header te: must be 'trailers'")
        if _BAD_VALUE(value):
            raise MalformedHeaders(f"header {name[:80]!r}: its value begins or ends with a space, or has a line end")
        known = values.get(name)
        values[name] = value if known is None else known + b"," + value
    if not values.get(b":path") or b":method" not in values or b":scheme" not in values:
        raise MalformedHeaders("headers: :method, :scheme and :path are needed")
    return values
