"""Access to operating figures: ``/metrics``, and ``/health`` beyond one word.

They name applications, variants, devices and plans, and need no key, so that monitoring is simple. A request counts by
the address that it comes from. It also has to name this box, or a web page could read the figures through the browser
of somebody on a permitted address (DNS rebinding), and a proxy must not have passed it on.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from .settings import Settings

REFUSAL = "metrics: not for this address, host name or proxy; NEREUS_METRICS_FROM lists addresses that may read them"
#: headers that proxies add
_FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip")


class MetricsAccess:
    """Decides by a request's peer and headers.

    Args:
        networks: addresses and networks of peers.
        names: of this box; one that begins with a dot stands for all below it. Addresses need not be listed.
    """

    def __init__(self, networks: Iterable[str], names: Iterable[str]):
        self._networks = [ipaddress.ip_network(network, strict=False) for network in networks]
        self._names = {name.lower().rstrip(".") for name in names if name}

    @classmethod
    def of(cls, settings: Settings) -> MetricsAccess:
        own = os.uname().nodename
        return cls(settings.metrics_from, ("localhost", own, f"{own}.local", *settings.host_names))

    def permit(self, peer: str, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request may read figures: ``headers`` by lower-case name."""
        return self.includes(peer) and self._names_box(headers) and not any(name in headers for name in _FORWARDED)

    def includes(self, peer: str) -> bool:
        address = _address(peer)
        if address is None:
            return False
        return any(address in network for network in self._networks if network.version == address.version)

    def _names_box(self, headers: Mapping[bytes, bytes]) -> bool:
        text = headers.get(b"host")
        if text is None:
            # HTTP/1.0; browsers always send it.
            return True
        try:
            host = (urlsplit(f"//{text.decode('ascii')}").hostname or "").rstrip(".")
        except ValueError:
            return False
        # An address cannot be made to mean another box.
        return _address(host) is not None or host in self._names or any(host.endswith(one) for one in self._below)

    @property
    def _below(self) -> list[str]:
        return [name for name in self._names if name.startswith(".")]


#: of a box whose settings are not known
LOOPBACK = MetricsAccess(("127.0.0.0/8", "::1"), ("localhost",))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
