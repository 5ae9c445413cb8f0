"""Addresses that servers listen on."""

from __future__ import annotations

import ipaddress

import msgspec


class Address(msgspec.Struct, frozen=True):
    """The address of a TCP server, with TLS or without."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL of the address for a browser on this box.

        A wildcard host becomes loopback.
        """
        return f"http{'s' * self.tls}://{self.local}"

    def url_at(self, host: str) -> str:
        """Return the URL of the address for other boxes, which reach this one at ``host``.

        Only a wildcard host is replaced.
        """
        if not host or not is_wildcard(self.host):
            return self.url
        return f"http{'s' * self.tls}://{bracketed(host)}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it can be reached from this box alone."""
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
    """Whether a host stands for all addresses of this box."""
    return host in ("0.0.0.0", "::")


def bracketed(host: str) -> str:
    """A host as it stands in front of a port."""
    return f"[{host}]" if ":" in host else host
