"""Large bodies, read straight into place."""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np


class Growing(Protocol):
    """Whose body it is."""

    def body_grew(self, size: int, whole: memoryview | None) -> None:
        """It has so many more bytes; ``whole``: it is complete."""

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class BodyReader(asyncio.BufferedProtocol):
    """Stands in for a connection while the rest of a large body is read into memory of its own."""

    def __init__(self, connection: Growing, size: int, begun: bytes):
        self._connection = connection
        # Not filled with anything, and not touched before it is needed: a size that a client only claims does no harm.
        self._view = memoryview(np.empty(size, np.uint8))
        self._view[: len(begun)] = begun
        self._have = len(begun)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        self._connection.body_grew(nbytes, self._view if self._have == len(self._view) else None)

    def connection_lost(self, exc: Exception | None) -> None:
        # The transport may keep its protocol for longer than the body is of use.
        self._view = memoryview(b"")
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
