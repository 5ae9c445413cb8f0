"""Members with certificates of one cluster. Handshakes between them use real sockets."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from pathlib import Path

from workers.trust.authority import Authority
from workers.trust.member import MemberIdentity, PeerIdentity, certify, peer_of

NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def member(
    authority: Authority, file: Path, role: str = "node", name: str = "a", now: datetime.datetime = NOW
) -> MemberIdentity:
    identity = MemberIdentity(file, role, name)
    renew(authority, identity, role, name, now)
    return identity


def renew(authority: Authority, identity: MemberIdentity, role: str = "node", name: str = "a", now=NOW) -> None:
    issued = certify(authority, identity.request(), role, name, now)
    identity.store(issued.certificate, authority.trusted.decode())


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[PeerIdentity, PeerIdentity]:
    """The peers that client and server see, once each has read from the other.

    Raises:
        ssl.SSLError, ConnectionError: of the side that refuses, the server's first.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    theirs.settimeout(30)
    seen: list[PeerIdentity] = []
    errors: list[Exception] = []

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as connection:
                seen.append(peer_of(connection))
                connection.sendall(connection.recv(1))
        except Exception as error:
            errors.append(error)
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours) as connection:
            connection.sendall(b"?")
            if connection.recv(1) != b"?":
                raise ConnectionError("the server has closed the connection")
            return peer_of(connection), seen[0]
    except OSError:
        thread.join()
        if errors and not isinstance(errors[0], ConnectionError):
            raise errors[0] from None
        raise
    finally:
        ours.close()
        thread.join()
