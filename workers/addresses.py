"""Addresses that servers listen on."""

from __future__ import annotations

import ipaddress

import msgspec


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """Its URL for a browser on this box; a wildcard host becomes loopback."""
        return f"http{'s' * self.tls}://{self.local}"

    def url_at(self, host: str) -> str:
        """Its URL for other boxes, which reach this one at ``host``."""
        if not host or not is_wildcard(self.host):
            return self.url
        return f"http{'s' * self.tls}://{bracketed(host)}:{self.port}"

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def local(self) -> str:
        """HOST:PORT for clients on this box (a wildcard host becomes loopback)."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{bracketed(host)}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this box and nothing else; asks no name server."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_wildcard(host: str) -> bool:
    return host in ("0.0.0.0", "::")


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
