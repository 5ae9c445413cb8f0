"""TLS in front of a protocol.

It bounds handshakes, and its flow control counts every unsent byte. uvloop's own ``create_server(ssl=…)`` bounds
neither the number of handshakes nor what waits in the socket behind TLS: a protocol would see an empty write buffer
while a client reads nothing. Needs uvloop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable

from workers.net.limits import TlsLimits

logger = logging.getLogger(__name__)

Factory = Callable[[], asyncio.BaseProtocol]
#: an application's limit of TLS's own buffer that is never reached: the socket's pauses the application
_UNLIMITED_BYTES = 2**31 - 1
#: bytes of a plain request that are read before it is answered
_PLAIN_BYTES = 16 * 1024


class TlsAcceptor:
    """Shakes hands with clients of one listening socket.

    Those that succeed are handed to their protocol. Those that speak HTTP without TLS are told so.

    Args:
        cure: tells them what to do; ``{host}`` is the one that they asked for.
    """

    def __init__(
        self,
        factory: Factory,
        context: ssl.SSLContext,
        limits: TlsLimits | None = None,
        cure: str = "use https://{host}",
    ):
        self.factory = factory
        self.context = context
        self.limits = limits or TlsLimits()
        self.cure = cure
        #: handshakes under way by their clients' hosts, the oldest first
        self._pending: dict[str, dict[_Handshake, None]] = {}
        self._count = 0

    def connection(self) -> asyncio.BaseProtocol:
        return _Handshake(self)

    def begin(self, handshake: _Handshake) -> None:
        """Count a handshake; beyond the limit, the oldest of the largest host ends."""
        if self._count >= self.limits.handshakes:
            next(iter(max(self._pending.values(), key=len))).abort()
        self._pending.setdefault(handshake.host, {})[handshake] = None
        self._count += 1

    def end(self, handshake: _Handshake) -> None:
        """A handshake has ended, either way; called more than once."""
        of_host = self._pending.get(handshake.host, {})
        if handshake in of_host:
            del of_host[handshake]
            self._count -= 1
            if not of_host:
                del self._pending[handshake.host]


class _Handshake(asyncio.Protocol):
    """A connection until its handshake is over; the first byte tells TLS from HTTP."""

    def __init__(self, acceptor: TlsAcceptor):
        self._acceptor = acceptor
        self._socket: asyncio.Transport | None = None
        self._task: asyncio.Task | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._early = b""
        self._answered = False
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self._acceptor.begin(self)
        self._timer = asyncio.get_running_loop().call_later(self._acceptor.limits.handshake_s, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            # Closing before a client has sent its body would reset the connection, and it would not see the answer.
            return
        # The socket may be read before the task's first step.
        self._early += data
        if self._task is None and not self._early[:1].isupper():
            self._task = asyncio.get_running_loop().create_task(self._shake_hands())
        elif self._task is None and (b"\r\n\r\n" in self._early or len(self._early) > _PLAIN_BYTES):
            self._answered = True
            self._socket.write(_plain_answer(self._early, self._acceptor.cure))
            self._socket.write_eof()
            self._early = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort()

    def abort(self) -> None:
        self._acceptor.end(self)
        self._timer.cancel()
        self._socket.abort()
        if self._task is not None:
            self._task.cancel()

    async def _shake_hands(self) -> None:
        acceptor, limits = self._acceptor, self._acceptor.limits
        loop = asyncio.get_running_loop()
        try:
            loop.call_soon(self._feed_early)
            encrypted = await loop.start_tls(
                self._socket,
                self,
                acceptor.context,
                server_side=True,
                ssl_handshake_timeout=limits.handshake_s,
                ssl_shutdown_timeout=limits.shutdown_s,
            )
        except OSError:
            # Strangers send anything; TLS has answered with its alert.
            self._socket.abort()
            return
        finally:
            self._timer.cancel()
            acceptor.end(self)
        # uvloop delivers the first data after this, in the event loop's next turn.
        protocol = acceptor.factory()
        encrypted.set_protocol(protocol)
        protocol.connection_made(TlsTransport(self._socket, encrypted))

    def _feed_early(self) -> None:
        """Feed TLS the bytes that came before it began.

        This runs between the start of TLS and its first read, since :meth:`_shake_hands` has scheduled it before both.
        """
        if self._early and not self._socket.is_closing():
            tls = self._socket.get_protocol()
            tls.get_buffer(len(self._early))[: len(self._early)] = self._early
            tls.buffer_updated(len(self._early))
            self._early = b""


def _plain_answer(request: bytes, cure: str) -> bytes:
    """Return the answer to a client that sent HTTP where TLS is spoken.

    gRPC clients, which begin with HTTP/2's preface, show its status; after a GOAWAY they would connect again and again.
    """
    fields = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    named = (value.strip() for name, _, value in (one.partition(":") for one in fields) if name.lower() == "host")
    host = next(named, "")
    text = f"this port speaks TLS, and the request came without: {cure.format(host=host[:300])}"
    # Problem details (RFC 9457), with the member of the V2 protocol's errors.
    problem = {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": text, "error": text}
    body = json.dumps(problem).encode()
    head = f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body


class TlsTransport(asyncio.Transport):
    """TLS transport whose flow control counts bytes its socket has not sent.

    Args:
        socket: the transport of the socket.
        encrypted: uvloop's transport on top of it.
    """

    def __init__(self, socket: asyncio.Transport, encrypted: asyncio.Transport):
        self._socket, self._encrypted = socket, encrypted
        encrypted.set_write_buffer_limits(_UNLIMITED_BYTES)
        socket.set_protocol(_SocketProtocol(socket.get_protocol(), encrypted))
        # Methods of the extension types themselves: a query must not pay for the indirection.
        self.write, self.writelines = encrypted.write, encrypted.writelines
        self.pause_reading, self.resume_reading = encrypted.pause_reading, encrypted.resume_reading
        self.is_closing, self.is_reading = encrypted.is_closing, encrypted.is_reading
        self.set_protocol, self.get_protocol = encrypted.set_protocol, encrypted.get_protocol
        self.get_extra_info = encrypted.get_extra_info
        self.close, self.abort = encrypted.close, encrypted.abort

    def get_write_buffer_size(self) -> int:
        return self._encrypted.get_write_buffer_size() + self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        return False


class _SocketProtocol(asyncio.BufferedProtocol):
    def __init__(self, tls: asyncio.BufferedProtocol, encrypted: asyncio.Transport):
        self._tls, self._encrypted = tls, encrypted
        self._paused = False
        self.get_buffer, self.buffer_updated = tls.get_buffer, tls.buffer_updated
        self.eof_received, self.connection_lost = tls.eof_received, tls.connection_lost

    def pause_writing(self) -> None:
        self._tls.pause_writing()
        if not self._paused:
            self._paused = True
            self._encrypted.get_protocol().pause_writing()

    def resume_writing(self) -> None:
        self._paused = False
        self._tls.resume_writing()
        # TLS has written what waited there, and may have filled the socket again.
        if not self._paused:
            self._encrypted.get_protocol().resume_writing()
