"""The running box: its identity and its address for other boxes.

Members that share a box are recognised by its identity.
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from .settings import Settings

#: the kernel's name for this boot, while copies of a disk image share /etc/machine-id
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: a container with a network of its own is a box of its own: mostly it has its own files, too
_NETWORK = Path("/proc/self/ns/net")


def identity(path: Path = _BOOT_ID, network: Path = _NETWORK) -> str:
    """A name for this box until its next boot; empty where the kernel gives none."""
    try:
        boot = path.read_text().strip().replace("-", "")[:40]
        return f"{boot}-{network.stat().st_ino}"
    except OSError:
        return ""


def own_host(settings: Settings) -> str:
    """Return the address at which other boxes reach this one.

    It is the setting, else the address of the control plane's link.
    """
    return settings.address or address_towards(settings.control_url)


def address_towards(url: str) -> str:
    """Return the local address of connections to a URL's host. Sends nothing.

    Empty: there is no way to the host now.
    """
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return probe.getsockname()[0]
    except OSError:
        return ""


def host_and_port(host: str, port: int) -> str:
    """``HOST:PORT``, of an IPv6 address with brackets; empty without a host."""
    if not host:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
