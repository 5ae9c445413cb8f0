"""Frames to other processes, over a unix socket or mutual TLS.

Processes on this box have unix sockets, those on other boxes mutual TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakSet

from workers import log
from workers.net.limits import TlsLimits
from workers.net.tls import TlsAcceptor
from workers.protocol import frame_connection
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frame_limits import GREETING, PeerLimits
from workers.protocol.frames import Hello
from workers.protocol.framing import FrameError

from .member import PeerIdentity, peer_of, server_context

logger = log.get("transport")

#: how long a handshake, and a peer's first frame after it, may take
HANDSHAKE_S = 3.0
HELLO_S = 5.0
#: time without an acknowledgement of what was sent, or of a keepalive, after which a connection is dead
DEAD_MS = 2000
_KEEPALIVE_IDLE_S, _KEEPALIVE_EVERY_S, _KEEPALIVE_MISSES = 2, 1, 2
#: connections of one member to one listener: fronts of a gateway have one each, and its core one more
MOST_CONNECTIONS = 80
#: connections that are being accepted
_BACKLOG = 128
#: told to HTTP clients
MEMBERS_ALONE = "it is for members of this cluster; queries go to NEREUS_HTTP, browsers and REST to NEREUS_CONSOLE"


@dataclass(frozen=True)
class Endpoint:
    address: str  # ``unix:/path``, or ``tls:HOST:PORT``
    member: PeerIdentity | None = None  # whom to find at the other end of TLS

    @property
    def local(self) -> bool:
        return self.address.startswith("unix:")


@dataclass(frozen=True)
class TlsClient:
    context: Callable[[], ssl.SSLContext]  # raises :class:`CertificateError` where it has no certificate yet
    limits: PeerLimits  # of frames


class MemberConnection(FrameConnection):
    """Frames over mutual TLS, with a member that ``admit`` accepts.

    Any other connection is cut at once.

    Args:
        args, named: as of a :class:`FrameConnection`.
        admit: raises :class:`FrameError` for members that may not connect.
        limits: of frames.
    """

    remote = True

    def __init__(self, *args, admit: Callable[[PeerIdentity], None], limits: PeerLimits, **named) -> None:
        super().__init__(*args, **named)
        self._admit = admit
        self._limits = limits
        self.most_sent = limits.sent.body
        self.limit_received(limits.received)
        self.identity: PeerIdentity | None = None
        """the member at the other end, once it is accepted"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        try:
            identity = peer_of(transport.get_extra_info("ssl_object"))
            self._admit(identity)
        except Exception as error:
            self.transport = transport  # type: ignore[assignment]
            self.fail(error)
            return
        self.identity = identity
        _keep_alive(transport.get_extra_info("socket"))
        super().connection_made(transport)

    def check_hello(self, message: Hello, *roles: str) -> None:
        """Check that a peer is the one that its certificate names.

        Args:
            roles: those that a member of the certificate's role may have here.

        Raises:
            FrameError: it says to be another one than its certificate says.
        """
        identity = self.identity
        if identity is None or message.name != identity.name or message.role not in roles:
            said = f"{message.role} {message.name!r}"
            raise FrameError(f"said to be {said}, but its certificate is of {identity.role} {identity.name!r}")
        self.limit_received(self._limits.received)


async def connect(
    endpoint: Endpoint, make: Callable[..., FrameConnection], client: TlsClient | None = None
) -> FrameConnection:
    """Open a connection.

    Args:
        make: makes the protocol; called with the class to make, and the arguments that it needs beside the others.
        client: for TLS.

    Raises:
        OSError: no process listens there, or TLS failed.
        ValueError: the endpoint needs TLS, and there is no client; or it is no endpoint.
        CertificateError: this member has no certificate yet.
    """
    if endpoint.local:
        return await frame_connection.connect(endpoint.address, make)
    host, _, port = endpoint.address.removeprefix("tls:").rpartition(":")
    if not endpoint.address.startswith("tls:") or not port.isdigit() or endpoint.member is None or client is None:
        raise ValueError(f"endpoint {endpoint.address!r}: must be unix:/path, or tls:HOST:PORT of a member")

    def admit(identity: PeerIdentity) -> None:
        if identity != endpoint.member:
            raise FrameError(f"{identity.role} {identity.name!r} is there, not {endpoint.member.name!r}, or its key")

    _, protocol = await asyncio.get_running_loop().create_connection(
        lambda: make(MemberConnection, admit=admit, limits=client.limits),
        host.strip("[]"),
        int(port),
        ssl=client.context(),
        ssl_handshake_timeout=HANDSHAKE_S,
    )
    return protocol


class MemberListener:
    """Accepts members over mutual TLS. Needs uvloop.

    Args:
        listener: a bound TCP socket, which lives as long as this.
        make: makes a connection's protocol, as of :func:`connect`.
        listed: says whether a member may connect; asked for each connection.
        limits: of frames, once a member's Hello was accepted.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[..., MemberConnection],
        listed: Callable[[PeerIdentity], bool],
        limits: PeerLimits,
    ) -> None:
        self._listener, self._make, self._listed, self._limits = listener, make, listed, limits
        self._accepted: WeakSet[MemberConnection] = WeakSet()
        self._server: asyncio.Server | None = None
        self._pem = b""

    async def use(self, pem: bytes) -> None:
        """Listen as the member of these keys and certificates from now on."""
        if pem == self._pem:
            return
        context = server_context(pem)
        acceptor = TlsAcceptor(self._accept, context, TlsLimits(handshake_s=HANDSHAKE_S), MEMBERS_ALONE)
        server = await asyncio.get_running_loop().create_server(
            acceptor.connection,
            # uvloop closes the socket together with its server.
            sock=self._listener.dup(),
            backlog=_BACKLOG,
        )
        before, self._server, self._pem = self._server, server, pem
        if before is not None:
            before.close()

    def cut_unlisted(self) -> None:
        """Cut the connections of members that are no longer listed."""
        for connection in self._of_members():
            if not self._listed(connection.identity):
                logger.warning("member_cut", name=connection.identity.name, reason="not listed any more")
                connection.transport.abort()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._listener.close()

    def _of_members(self) -> list[MemberConnection]:
        return [connection for connection in self._accepted if connection.identity is not None and connection.open]

    def _accept(self) -> MemberConnection:
        connection = self._make(MemberConnection, admit=self._check, limits=self._limits)
        connection.limit_received(GREETING)
        self._accepted.add(connection)
        asyncio.get_running_loop().call_later(HANDSHAKE_S + HELLO_S, _expect_hello, connection)
        return connection

    def _check(self, identity: PeerIdentity) -> None:
        if not self._listed(identity):
            raise FrameError(f"{identity.role} {identity.name!r} is not listed as a peer, or with another key")
        if sum(connection.identity == identity for connection in self._of_members()) >= MOST_CONNECTIONS:
            raise FrameError(
                f"{identity.role} {identity.name!r} has {MOST_CONNECTIONS} connections here, which is most"
            )


def _expect_hello(connection: FrameConnection) -> None:
    if connection.open and connection.peer is None:
        connection.fail(FrameError(f"no Hello within {HELLO_S:g} s"))


def _keep_alive(connected: socket.socket) -> None:
    """Notice a box that is gone: nobody closes its connections."""
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
        (socket.TCP_KEEPINTVL, _KEEPALIVE_EVERY_S),
        (socket.TCP_KEEPCNT, _KEEPALIVE_MISSES),
        (socket.TCP_USER_TIMEOUT, DEAD_MS),
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
