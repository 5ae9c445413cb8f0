"""A connection that speaks frames: both of its ends, over unix sockets or TLS."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .frame_limits import FrameLimits
from .frames import Buffer, Frame, Hello
from .framing import MAX_BODY, PREFIX, VERSION, Framing

#: a batch's inputs are to fit between two processes: else each part of them that the other has taken wakes this one
SEND_BUFFER_BYTES = 2 * 1024 * 1024
#: bytes of a body that are rather copied behind their header than handed to the system apart from it
_JOINED = 4096

_encoder = msgspec.msgpack.Encoder()


def encode(message: Frame, body: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return a frame as buffers for ``transport.writelines``.

    ``body`` is not copied, unless it is so small that all of the frame is better one buffer.
    """
    header = _encoder.encode(message)
    size = 0
    for part in body:
        size += part.nbytes if isinstance(part, memoryview) else len(part)
    prefix = PREFIX.pack(b"NR", VERSION, 0, len(header), size)
    if size <= _JOINED:
        return [b"".join((prefix, header, *body))]
    return [prefix + header, *body]


class FrameConnection(asyncio.BufferedProtocol):
    """An asyncio protocol that speaks frames.

    Both ends use it, over unix sockets or TLS.

    Args:
        types: the union of messages that this end receives (:data:`ToExecutor` or :data:`FromExecutor`).
        on_message: called with (connection, message, body) in order of arrival; the body is a memoryview that stays
            valid as long as it is referenced. An exception from it closes the connection.
        on_closed: called once with (connection, exception or None).
        on_connected: called with the connection once it is usable.
        memory: see :class:`.framing.Framing`.
    """

    def __init__(
        self,
        types,
        on_message: Callable[[FrameConnection, Frame, memoryview], None],
        on_closed: Callable[[FrameConnection, Exception | None], None],
        on_connected: Callable[[FrameConnection], None] | None = None,
        memory: Callable[[int], Any] = bytearray,
    ):
        self._decoder = _decoder(types)
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_connected = on_connected
        self._framing = Framing(memory)
        self._error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self.peer: Hello | None = None
        """the client's Hello, kept here by servers"""
        self.backed_up = False
        """whether the socket takes less than is written: :meth:`pending_bytes` is what is left"""
        self.reads = 0
        """how often the socket was read: messages that come with the same number came in one piece"""

    remote = False
    """whether the other end is on another box"""
    most_sent = MAX_BODY
    """bytes of a body that the other end accepts"""

    def limit_received(self, limits: FrameLimits) -> None:
        self._framing.limit(*limits)

    @property
    def open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def check_hello(self, message: Hello, *roles: str) -> None:
        """Check that the other end is the peer that it says to be.

        On a unix socket nothing is checked: a process that may open it may say anything.

        Raises:
            FrameError: it is not.
        """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        made = transport.get_extra_info("socket")
        if made is not None and made.family == socket.AF_UNIX:
            # The system may silently allow less. TCP sizes its own buffers.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if self._on_connected is not None:
            self._on_connected(self)

    def send(self, message: Frame, body: Sequence[Buffer] = ()) -> bool:
        """Queue a frame.

        Returns:
            False: the connection is gone (its ``on_closed`` has been or will be called).
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        parts = encode(message, body)
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)
        return True

    def send_all(self, messages: Sequence[tuple[Frame, Sequence[Buffer]]]) -> bool:
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        if len(messages) == 1:
            transport.writelines(encode(*messages[0]))
        else:
            transport.writelines([part for message, body in messages for part in encode(message, body)])
        return True

    def pending_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def fail(self, error: Exception) -> None:
        """Cut the connection, and have ``on_closed`` called with the error."""
        self._error = error
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        self.backed_up = True

    def resume_writing(self) -> None:
        self.backed_up = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framing.space()

    def buffer_updated(self, nbytes: int) -> None:
        self.reads += 1
        try:
            for header, body in self._framing.filled(nbytes):
                self._on_message(self, self._decoder.decode(header), body)
        except Exception as error:
            self.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_closed(self, self._error or exc)


@functools.cache
def _decoder(types) -> msgspec.msgpack.Decoder:
    return msgspec.msgpack.Decoder(types)


async def connect(endpoint: str, connection: Callable[[], FrameConnection]) -> FrameConnection:
    if not endpoint.startswith("unix:"):
        raise ValueError(f"endpoint {endpoint!r}: must be unix:/path")
    _, protocol = await asyncio.get_running_loop().create_unix_connection(connection, endpoint.removeprefix("unix:"))
    return protocol
