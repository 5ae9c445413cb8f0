"""Requests' heads of one HTTP/2 connection (RFC 7541, RFC 9113, section 8), unpacked by the hpack library.

Clients say the same in the heads of all their requests, in a few bytes that name entries of a table that both sides
keep. A block that leaves the table as it is means the same until another block changes the table: such blocks are
remembered.
"""

from __future__ import annotations

from typing import Any

import hpack

from .frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2Error

#: bytes of a head, as its fields and 32 for each
MOST_BYTES = 16 * 1024
#: blocks that are remembered, and the longest one that is
BLOCKS, BLOCK_BYTES = 64, 1024
#: fields that say something about a connection of HTTP/1.1 (RFC 9113, section 8.2.2)
_OF_CONNECTIONS = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})


class Malformed(ValueError):
    """A head that no request may have; the connection can go on."""


class Head:
    """A request's head. ``fields``: by lower-case name; a repeated field's values are joined by a comma. ``state``:
    kept by whoever admits requests."""

    __slots__ = ("fields", "state")

    def __init__(self, fields: dict[bytes, bytes]):
        self.fields = fields
        self.state: Any = None


class Heads:
    """Reads the heads of one connection in the order in which they come."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=MOST_BYTES)
        self._known: dict[bytes, Head] = {}

    def read(self, block: bytes) -> Head:
        """The head that a block says.

        Raises:
            Malformed: what it says is no request's head.
            Http2Error: it cannot be unpacked, or is too long.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        keeps = len(block) <= BLOCK_BYTES and leaves_table(block)
        if not keeps:
            self._known.clear()
        try:
            fields = self._decoder.decode(block, raw=True)
        except hpack.OversizedHeaderListError:
            raise Http2Error(ENHANCE_YOUR_CALM, f"headers: at most {MOST_BYTES} bytes") from None
        except (hpack.HPACKError, IndexError) as error:
            raise Http2Error(COMPRESSION_ERROR, f"headers: {error}") from None
        head = Head(_checked(fields))
        if keeps:
            if len(self._known) >= BLOCKS:
                self._known.clear()
            self._known[block] = head
        return head


def _checked(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    plain = False
    for name, value in fields:
        name, value = bytes(name), bytes(value)
        if name.startswith(b":"):
            if plain or name not in _PSEUDO or name in found:
                raise Malformed(f"header {name[:80]!r}: is not known, out of place or given twice")
        else:
            plain = True
            if not name or name != name.lower() or name in _OF_CONNECTIONS:
                raise Malformed(f"header {name[:80]!r}: not allowed in HTTP/2")
            if name == b"te" and value != b"trailers":
                raise Malformed("header te: must be 'trailers'")
        known = found.get(name)
        found[name] = value if known is None else known + b"," + value
    if not found.get(b":path") or b":method" not in found or b":scheme" not in found:
        raise Malformed("headers: :method, :scheme and :path are needed")
    return found


def leaves_table(block: bytes) -> bool:
    """Whether all fields of a block are of kinds that leave the table as it is (RFC 7541, section 6); False as well
    where the block is cut off."""
    offset, size = 0, len(block)
    try:
        while offset < size:
            kind = block[offset]
            if kind & 0x80:
                _, offset = _integer(block, offset, 0x7F)
            elif kind & 0x60:
                return False
            else:
                index, offset = _integer(block, offset, 0x0F)
                for _ in range(1 if index else 2):
                    length, offset = _integer(block, offset, 0x7F)
                    offset += length
    except IndexError:
        return False
    return offset == size


def _integer(block: bytes, offset: int, mask: int) -> tuple[int, int]:
    """(value, offset behind it). Raises IndexError where it is cut off or longer than any that is meant."""
    value = block[offset] & mask
    offset += 1
    if value < mask:
        return value, offset
    for shift in range(0, 28, 7):
        byte = block[offset]
        offset += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise IndexError
