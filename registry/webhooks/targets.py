"""Addresses that webhooks may reach.

They are public ones over https, and networks that ``NEREUS_WEBHOOK_NETWORKS`` names. A host's name is resolved once for
each delivery, every address that it has is checked, and the connection goes to the address that was checked: a name
that changes between look and connection leads nowhere else. Redirects are not followed.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
PORTS = {"https": 443, "http": 80}
#: addresses behind which a router of the network reaches IPv4 (NAT64, RFC 6052): the last 32 bits are the IPv4 address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ForbiddenTarget(Exception):
    """Why a webhook's address may not be reached, and what would permit it."""


@dataclass(frozen=True)
class Target:
    """A checked address; ``host``: the name that the certificate must have."""

    scheme: str
    host: str
    port: int
    address: str
    path: str

    @property
    def url(self) -> str:
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{shown}:{self.port}{self.path}"


def parsed(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ForbiddenTarget("is no URL") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise ForbiddenTarget("must be https://HOST/PATH, or http:// inside NEREUS_WEBHOOK_NETWORKS")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ForbiddenTarget("must have neither user nor fragment; deliveries are signed instead")
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise ForbiddenTarget("must have no spaces or control characters")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, parts.hostname, PORTS[parts.scheme] if port is None else port, path


def resolved(url: str) -> Target:
    """The target of a delivery; ForbiddenTarget: an address that may not be reached."""
    scheme, host, port, path = parsed(url)
    try:
        found = {ipaddress.ip_address(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError, ValueError) as error:
        raise ForbiddenTarget(f"the host {host!r} has no address: {error}") from None
    for address in sorted(found, key=str):
        _check(host, address, scheme)
    return Target(scheme, host, port, str(min(found, key=lambda one: (one.version, str(one)))), path)


def _plain(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _public(address: Address) -> bool:
    unroutable = address.is_multicast or address.is_reserved or getattr(address, "is_site_local", False)
    return address.is_global and not unroutable


def _check(host: str, address: Address, scheme: str) -> None:
    plain = _plain(address)
    if any(plain in ipaddress.ip_network(network, strict=False) for network in settings.NEREUS.webhook_networks):
        return
    if not _public(plain):
        raise ForbiddenTarget(f"{host} is {plain}, which is not public; NEREUS_WEBHOOK_NETWORKS would permit it")
    if scheme != "https":
        raise ForbiddenTarget(f"must be https://, since {host} is outside NEREUS_WEBHOOK_NETWORKS")
