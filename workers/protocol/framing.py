"""Cutting a stream of bytes into frames, with as few copies as can be. Pure.

A frame is ``b"NR"``, version (u8), zero (u8), header length (u32), body length (u32), little-endian, then header and
body. Small frames arrive in a room that is used again and again, many in one read; their bodies are copied out. A
large one gets memory of its own as soon as its size is known, and the rest of it is read straight into that.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

VERSION = 1
PREFIX = struct.Struct("<2sBBII")
_PREFIX_BYTES = PREFIX.size
MAX_HEADER = 16 * 1024 * 1024
MAX_BODY = 2**31
#: bytes that are read at once
_ROOM = 128 * 1024
#: a frame of more bytes that is not yet whole gets memory of its own
_LARGE = 16 * 1024
#: behind a large frame likely comes another one: this many bytes hold its size, and no more of it has to be moved
_BEGINNING = 4 * 1024
#: a frame of at most this many bytes gets memory of the heap, which is quicker
_COMMON = 16 * 1024 * 1024
#: bodies of large frames begin at a multiple of this, so that tensors can be used where they are
_ALIGNED = 16


class FrameError(Exception):
    """Received bytes are not a frame of this version; the connection cannot go on."""


class Framing:
    """Bytes in, frames out.

    Fill the buffer that :meth:`space` gives, then call :meth:`filled` with the count.

    Args:
        memory: makes a writable buffer of a given size, beginning at a multiple of 16, for a large frame. It need not
            be zeroed, which numpy saves.
    """

    __slots__ = ("_at", "_beginning", "_have", "_large", "_limits", "_memory", "_quick", "_sizes", "_view", "_whole")

    def __init__(self, memory: Callable[[int], Any] = bytearray) -> None:
        self._memory = memory
        self._limits = MAX_HEADER, MAX_BODY
        #: bytes of a frame in one piece that cannot exceed the limits
        self._quick = _ROOM
        self._whole = memoryview(bytearray(_ROOM))
        self._beginning = self._whole[:_BEGINNING]
        #: the room, or its beginning where a large frame is expected; how much of it is filled
        self._view = self._whole
        self._have = 0
        #: the large frame that is being read, from its header on; how much of it is there; sizes of header and body
        self._large: memoryview | None = None
        self._at = 0
        self._sizes = (0, 0)

    def limit(self, header: int, body: int) -> None:
        """Accept no larger frames from now on, except one whose size is known already."""
        self._limits = header, body
        self._quick = _PREFIX_BYTES + min(header, body, _ROOM)

    def space(self) -> memoryview:
        if self._large is not None:
            return self._large[self._at :]
        return self._whole[self._have :] if self._have else self._view

    def filled(self, count: int) -> Iterable[tuple[memoryview, memoryview]]:
        """Return (header, body) of each frame that is whole now.

        The header may be used until the next frame is asked for, the body for as long as it is referenced.

        Raises:
            FrameError: these are no frames of this version, or one is too large.
        """
        if self._large is None:
            have = self._have = self._have + count
            if have >= _PREFIX_BYTES:
                room = self._whole
                magic, version, _, header, body = PREFIX.unpack_from(room)
                middle = _PREFIX_BYTES + header
                if middle + body == have <= self._quick and magic == b"NR" and version == VERSION:
                    # One frame in one piece, as it mostly is.
                    self._have, self._view = 0, room
                    return ((room[_PREFIX_BYTES:middle], memoryview(bytes(room[middle:have]))),)
            return self._cut()
        self._at += count
        if self._at < len(self._large):
            return ()
        large, (header, _), self._large = self._large, self._sizes, None
        self._view = self._beginning
        return ((large[:header], large[header:].toreadonly()),)

    def _cut(self) -> Iterator[tuple[memoryview, memoryview]]:
        room, offset, have = self._whole, 0, self._have
        while have - offset >= _PREFIX_BYTES:
            magic, version, _, header, body = PREFIX.unpack_from(room, offset)
            if magic != b"NR" or version != VERSION:
                raise FrameError(f"not a frame of version {VERSION}: {bytes(magic)!r} version {version}")
            start = offset + _PREFIX_BYTES
            end = start + header + body
            # Read for each frame: what one of them says may change them.
            most_header, most_body = self._limits
            if header > most_header or body > most_body:
                raise FrameError(
                    f"frame too large: header {header}, body {body} bytes; at most {most_header} and {most_body}"
                )
            if have < end:
                if header + body > _LARGE:
                    self._grow(header, body, room[start:have])
                    self._have = 0
                    return
                break
            offset = end
            self._view = room
            middle = start + header
            yield room[start:middle], memoryview(bytes(room[middle:end]))
        self._have = have - offset
        if offset < have and offset:
            room[: self._have] = bytes(room[offset:have])

    def _grow(self, header: int, body: int, begun: memoryview) -> None:
        # A size that a peer only claims must do no harm: what the kernel maps costs nothing until it is touched. Both
        # kinds of memory begin at a multiple of 16.
        skip = -header % _ALIGNED
        size = skip + header + body
        memory = self._memory(size) if size <= _COMMON else mmap.mmap(-1, size)
        self._large = memoryview(memory)[skip : skip + header + body]
        self._large[: len(begun)] = begun
        self._at = len(begun)
        self._sizes = header, body
