"""uvicorn with limits, and a certificate that may change."""

from __future__ import annotations

import asyncio
import json
import socket

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from workers.net.tls import TlsAcceptor
from workers.trust.server import ServerIdentity

#: open connections, browsers' and members' websockets included; beyond, the one that waits longest for a request goes
MAX_CONNECTIONS = 1024
#: request line and headers in bytes
HEAD_BYTES = 64 * 1024
#: seconds for a request's head from its first byte or the connection's start
HEAD_S = 10.0
#: seconds without a byte of an unfinished body
BODY_S = 30.0


class LimitedProtocol(H11Protocol):
    """An HTTP connection that is closed if its client stops in mid-request."""

    _timer: asyncio.TimerHandle | None = None
    _upgraded = False
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS and not self._make_room():
            transport.abort()
            return
        self._start(HEAD_S)

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for a request; whether one has."""
        http = (other for other in self.connections if isinstance(other, LimitedProtocol))
        idle = [other for other in http if other is not self and other._idle]
        if not idle:
            return False
        min(idle, key=lambda other: other._idle_since).transport.abort()
        return True

    @property
    def _idle(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._upgraded:
            # To h11 the upgrade's body never ends, while the websocket lasts for as long as both sides want it.
            return
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._start(BODY_S)
        elif state is not h11.IDLE:
            self._stop()
        elif self._timer is None and not self.transport.is_closing():
            self._start(HEAD_S)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        self._stop()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP request, as a problem."""
        # Not above: gunicorn reads this module before Django has its settings.
        from registry.api.problems import MEDIA_TYPE, body

        detail = f"{msg} The head must be HTTP/1.1 with one Host, at most {HEAD_BYTES} bytes; the connection is closed."
        content = json.dumps(body(400, detail)).encode()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        self._stop()
        super().on_response_complete()

    def _start(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.flow.read_paused:
            # The application has not taken what arrived.
            self._start(BODY_S)
        else:
            self.transport.abort()


class Server(uvicorn.Server):
    """Serves over TLS where there is an identity."""

    def __init__(self, config: uvicorn.Config, identity: ServerIdentity | None):
        super().__init__(config)
        self._identity = identity
        self._watching: asyncio.Task | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._identity is None:
            await super().startup(sockets)
            return
        await super().startup([])
        acceptor = TlsAcceptor(self._protocol, self._identity.context)
        loop = asyncio.get_running_loop()
        for listener in sockets or ():
            server = await loop.create_server(acceptor.connection, sock=listener, backlog=self.config.backlog)
            self.servers.append(server)
        self._watching = asyncio.create_task(self._identity.watch(), name="certificate")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.BaseProtocol:
        return self.config.http_protocol_class(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
