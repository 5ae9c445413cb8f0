"""The other end of a member's connection."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    """An address, and whether it is of this box; unknown ones count as of others."""

    address: str = ""
    own_box: bool = False


def of_scope(scope: dict[str, Any]) -> Peer:
    """The peer of an ASGI connection; behind a trusted proxy, whom that proxy names."""
    client, server = scope.get("client"), scope.get("server")
    address = _plain(client[0]) if client else ""
    # A connection whose two ends have one address has not left the box.
    return Peer(address, bool(address) and (_loopback(address) or (bool(server) and _plain(server[0]) == address)))


def _plain(host: str) -> str:
    return host.removeprefix("::ffff:")


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
