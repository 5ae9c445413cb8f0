"""Settings of a gateway's processes, and the addresses that they name."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from workers.addresses import Address
from workers.metrics_access import LOOPBACK, MetricsAccess
from workers.protocol.frame_limits import QueryLimits
from workers.trust.authority import CertificateError
from workers.trust.endpoints import TlsClient
from workers.trust.member import client_context


class CannotListen(OSError):
    """An address that ``setting`` names cannot be used."""

    def __init__(self, setting: str, address: str, reason: str):
        super().__init__(f"{setting}={address}: {reason}")
        self.setting, self.address, self.reason = setting, address, reason


@dataclass(frozen=True)
class LocalGateways:
    """One of several gateways on a box, the first of which has the core.

    Attributes:
        core: the core's unix socket.
        totals: files of all fronts, the one at ``own`` being its own.
    """

    core: Path
    totals: tuple[Path, ...]
    own: int


@dataclass(frozen=True)
class GatewayOptions:
    """Settings of a gateway's processes.

    Attributes:
        host, port: V2 over HTTP; ``grpc_host``, ``grpc_port``: over gRPC.
        file: of the last configuration.
        queue_rows: rows that may wait for a device, and the most that one query may have.
        max_body_bytes: of an HTTP body or gRPC message; ``max_json_bytes``: of its JSON.
        address_connections: of one peer address to each port.
        adopt_limit_s: seconds after which an application moves to a plan whose variants are not all warm.
        local_gateways: all of this box; None: there is no other one.
        admin_socket: of this process alone, for metrics and pings.
        http_tls, grpc_tls: contexts of the two addresses; None: without TLS.
        access: who may read operating figures.
        member: the member that this process is part of.
        identity: the file of the member's key and certificate.
        core_address: where the core listens for fronts of other boxes; None: nowhere.
    """

    name: str
    host: str
    port: int
    grpc_host: str
    grpc_port: int
    file: Path
    queue_rows: int = 512
    max_body_bytes: int = 16 * 1024 * 1024
    max_json_bytes: int = 8 * 1024 * 1024
    address_connections: int = 1024
    adopt_limit_s: float = 5.0
    local_gateways: LocalGateways | None = None
    admin_socket: Path | None = None
    http_tls: ssl.SSLContext | None = None
    grpc_tls: ssl.SSLContext | None = None
    access: MetricsAccess = LOOPBACK
    member: str = ""
    identity: Path | None = None
    core_address: Address | None = None

    @property
    def query_limits(self) -> QueryLimits:
        return QueryLimits(self.max_body_bytes, self.max_json_bytes)

    @property
    def tls_client(self) -> TlsClient:
        return TlsClient(self.client_context, self.query_limits.asking)

    def client_context(self) -> ssl.SSLContext:
        """For TLS to members of other boxes."""
        if self.identity is None:
            raise CertificateError("this process has no key for other boxes")
        return client_context(self.identity.read_bytes())


def member_socket(address: Address) -> socket.socket:
    """A socket for fronts of other boxes."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise CannotListen("NEREUS_CORE", str(address), str(error)) from None
