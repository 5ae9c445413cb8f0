"""Length-prefixed messages of gRPC in a stream of bytes. Pure.

Each is a flag, four bytes of length, and the message.
"""

from __future__ import annotations

import struct

import numpy as np

from workers.net.limits import DIRECT_READ_BYTES, Rate
from workers.net.progress import Progress

from .status import Code, StatusError, invalid

Buffer = bytes | bytearray | memoryview

#: bytes in front of a message
PREFIX = 5
_PREFIX = struct.Struct(">BI")


class MessageParser:
    def __init__(self, message_bytes: int, rate: Rate):
        self._message_bytes = message_bytes
        self._progress = Progress(rate)
        #: the beginning of a message, and how long it must be before parsing goes on
        self._buffer = bytearray()
        self._needed = PREFIX
        #: memory for a large message, and how much of it is there
        self._place: memoryview | None = None
        self._filled = 0
        self._compressed = False
        #: bytes so far
        self._arrived = 0

    @property
    def partial(self) -> int:
        return len(self._buffer) + self._filled

    def slow(self, now: float) -> bool:
        """Whether a period has ended with too few bytes; to be called about each second."""
        return self._progress.slow(now, self._arrived)

    def pause(self) -> None:
        self._progress.restart(None, self._arrived)

    def feed(self, data: Buffer) -> list[tuple[bool, Buffer]]:
        """The messages that these bytes complete: (compressed, message).

        Raises:
            StatusError: the bytes are no message, or one that is too large.
        """
        messages: list[tuple[bool, Buffer]] = []
        self._arrived += len(data)
        if self._place is not None:
            data = self._fill(data)
            if self._filled < len(self._place):
                return messages
            messages.append((self._compressed, self._place))
            self._place, self._filled = None, 0
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return messages
            data = bytes(self._buffer)
            self._buffer.clear()
        offset, size = 0, len(data)
        self._needed = PREFIX
        while size - offset >= PREFIX:
            flag, length = _PREFIX.unpack_from(data, offset)
            self._check(flag, length)
            end = offset + PREFIX + length
            if end - size > DIRECT_READ_BYTES:
                # Not initialised, so that a length that a client only claims takes no memory.
                self._place, self._compressed = memoryview(np.empty(length, np.uint8)), bool(flag)
                self._fill(data[offset + PREFIX :])
                return messages
            if end > size:
                self._needed = PREFIX + length
                break
            # A copy: as a view, a small message would keep everything that arrived with it.
            messages.append((bool(flag), bytes(data[offset + PREFIX : end])))
            offset = end
        self._buffer += data[offset:]
        return messages

    def _check(self, flag: int, length: int) -> None:
        if flag > 1:
            raise invalid("message: its first byte must be 0, or 1 where it is compressed")
        most = self._message_bytes
        if length > most:
            text = f"message: has {length} bytes, which is larger than max ({most} bytes)"
            raise StatusError(Code.RESOURCE_EXHAUSTED, text)

    def _fill(self, data: Buffer) -> Buffer:
        piece = data[: len(self._place) - self._filled]
        self._place[self._filled : self._filled + len(piece)] = piece
        self._filled += len(piece)
        return data[len(piece) :]


def prefix(length: int) -> bytes:
    return _PREFIX.pack(0, length)
