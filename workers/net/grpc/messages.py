"""Messages as gRPC puts them into a stream of bytes: a flag, four bytes of length, and the message
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, Length-Prefixed-Message). Pure."""

from __future__ import annotations

import struct

import numpy as np

from workers.protocol.tensors import Buffer

#: bytes in front of a message
PREFIX = 5
#: a message of which more than this is still to come is put straight into memory of its own
IN_PLACE = 64 * 1024

#: each so many seconds of unfinished messages must bring so many bytes/s on average
PERIOD_S, BYTES_PER_S = 30.0, 4096

_PREFIX = struct.Struct(">BI")


class MessageError(ValueError):
    """What came is no message, or one that is too large (``too_large``)."""

    def __init__(self, message: str, too_large: bool = False):
        super().__init__(message)
        self.too_large = too_large


class Messages:
    """Puts messages together.

    Args:
        most_bytes: of one message.
    """

    __slots__ = (
        "_buffer",
        "_came",
        "_compressed",
        "_have",
        "_most_bytes",
        "_needs",
        "_place",
        "_since",
        "_since_bytes",
    )

    def __init__(self, most_bytes: int):
        self._most_bytes = most_bytes
        #: the beginning of a message, and how long it must be to be of use
        self._buffer = bytearray()
        self._needs = PREFIX
        #: where a large message is put, and how much of it is there
        self._place: memoryview | None = None
        self._have = 0
        self._compressed = False
        #: bytes that came in all, and by the beginning of the period over which their rate is judged
        self._came = self._since_bytes = 0
        self._since: float | None = None

    @property
    def partial(self) -> int:
        """Bytes that wait for the rest of their message."""
        return len(self._buffer) + self._have

    def slow(self, now: float) -> bool:
        """Whether a period has ended that brought too few bytes; to be called about each second."""
        if self._since is None:
            self._since = now
        elapsed_s = now - self._since
        if elapsed_s < PERIOD_S:
            return False
        came = self._came - self._since_bytes
        self._since, self._since_bytes = now, self._came
        return came < BYTES_PER_S * elapsed_s

    def pause(self) -> None:
        """Start the next period: no bytes are due before its end."""
        self._since, self._since_bytes = None, self._came

    def feed(self, data: Buffer) -> list[tuple[bool, Buffer]]:
        """The messages that are complete with these bytes: (compressed, message).

        Raises:
            MessageError: this is no message, or one that is too large.
        """
        found: list[tuple[bool, Buffer]] = []
        self._came += len(data)
        if self._place is not None:
            data = self._fill(data)
            if self._have < len(self._place):
                return found
            found.append((self._compressed, self._place))
            self._place, self._have = None, 0
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needs:
                return found
            data = bytes(self._buffer)
            self._buffer.clear()
        offset, size = 0, len(data)
        self._needs = PREFIX
        while size - offset >= PREFIX:
            flag, length = _PREFIX.unpack_from(data, offset)
            if flag > 1:
                raise MessageError("message: its first byte must be 0, or 1 where it is compressed")
            if length > self._most_bytes:
                raise MessageError(
                    f"message: has {length} bytes, which is larger than max ({self._most_bytes} bytes)", True
                )
            end = offset + PREFIX + length
            if end - size > IN_PLACE:
                # Not filled with anything: a length that a client only claims does no harm.
                self._place, self._compressed = memoryview(np.empty(length, np.uint8)), bool(flag)
                self._fill(data[offset + PREFIX :])
                return found
            if end > size:
                self._needs = PREFIX + length
                break
            # Not a view: a small message is not to keep all that came with it.
            found.append((bool(flag), bytes(data[offset + PREFIX : end])))
            offset = end
        self._buffer += data[offset:]
        return found

    def _fill(self, data: Buffer) -> Buffer:
        """Put as much in place as belongs there; the rest."""
        piece = data[: len(self._place) - self._have]
        self._place[self._have : self._have + len(piece)] = piece
        self._have += len(piece)
        return data[len(piece) :]


def prefixed(length: int) -> bytes:
    """What stands in front of a message that is not compressed."""
    return _PREFIX.pack(0, length)
