"""What a gateway process is started with, and the addresses that it cannot use."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from workers import disk
from workers.addresses import Address
from workers.protocol.frame_limits import QueryLimits
from workers.settings import Settings
from workers.trust.endpoints import TlsClient
from workers.trust.member import client_context, identity_file


class CannotListen(OSError):
    def __init__(self, setting: str, address: str, reason: str):
        super().__init__(f"{setting}={address}: {reason}")
        self.setting, self.address, self.reason = setting, address, reason


@dataclass(frozen=True)
class GatewayOptions:
    """Settings, and which of its processes this is.

    Attributes:
        number: which of the box's gateways it is, from 1; the first has the core.
        http_tls, grpc_tls: contexts of the two addresses; None: without TLS.
    """

    settings: Settings
    number: int = 1
    http_tls: ssl.SSLContext | None = None
    grpc_tls: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        return self.settings.gateway_names[self.number - 1]

    @property
    def member(self) -> str:
        return self.settings.gateway_names[0]

    @property
    def several(self) -> bool:
        return self.settings.gateways > 1

    @property
    def file(self) -> Path:
        """The last configuration."""
        return self.settings.home / "members" / f"gateway-{disk.safe_name(self.member)}-config.json"

    @property
    def identity(self) -> Path:
        return identity_file(self.settings.home, "gateway", self.member)

    @property
    def query_limits(self) -> QueryLimits:
        return QueryLimits(self.settings.max_request_bytes, self.settings.max_json_bytes)

    @property
    def tls_client(self) -> TlsClient:
        return TlsClient(lambda: client_context(self.identity.read_bytes()), self.query_limits.asking)


def member_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise CannotListen("NEREUS_CORE", str(address), str(error)) from None
