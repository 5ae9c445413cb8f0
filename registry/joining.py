"""The command by which another box joins, of command line and page *Nodes*."""

from __future__ import annotations

import secrets
import shlex
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from django.conf import settings
from django.utils import timezone

from registry import members
from registry.errors import Conflict
from registry.models import JoinToken
from workers.addresses import bracketed, is_loopback
from workers.settings import Settings
from workers.trust import server
from workers.trust.authority import CertificateError
from workers.trust.control_plane import fingerprint

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=30)
#: an address beyond all networks (RFC 5737): which of this box's own addresses leads there
_ELSEWHERE = ("192.0.2.1", 9)
#: seconds for a look whether the console answers there
_LOOK_S = 3.0


@dataclass(frozen=True)
class JoinLine:
    """A line for another box, and what an operator should know about it.

    ``remarks``: sentences, one a line; ``warning``: why it may not reach or trust the console.
    """

    command: str
    token: str
    expires: datetime
    remarks: list[str]
    warning: str


def join_line(role: str, control: str, ttl: timedelta) -> JoinLine:
    """Make a join token that works once, and the line that uses it.

    ``role``: ``node`` or ``gateway``; ``control``: this console's URL for the other box; empty: its own. Raises
    Conflict: none can reach this console, or its certificate cannot be used.
    """
    values = settings.NEREUS
    url = _checked(control, values) if control else _own_url(values)
    authority = _authority(values, url)
    expires = timezone.now() + ttl
    name = f"join-{role}-{secrets.token_hex(4)}"
    _, token = members.create_join_token(name, kind=JoinToken.Kind(role), uses=1, expires=expires, auto_approve=True)
    variables = {"NEREUS_CONTROL_URL": url}
    if authority is not None:
        variables["NEREUS_CONTROL_FINGERPRINT"] = f"sha256:{fingerprint(authority)}"
    variables["NEREUS_JOIN_TOKEN"] = token
    assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return JoinLine(
        command=f"{assignments} make run ROLE={role}",
        token=name,
        expires=expires,
        remarks=_explained(role, name, expires, authority is not None),
        warning=_trouble(url, authority),
    )


def _explained(role: str, name: str, expires: datetime, pinned: bool) -> list[str]:
    lines = [
        f"Run the last line in a checkout of this release on the box that is to become a {role}.",
        f"Its token ({name}) admits one {role}, until {expires:%Y-%m-%d %H:%M} UTC. Later starts need the same",
        "settings, but no token.",
    ]
    if pinned:
        lines.append("The box verifies this control plane by its authority's fingerprint before it sends anything.")
    if role == "gateway":
        lines.append(
            "It serves clients on its own box; NEREUS_HTTP=0.0.0.0:8000 NEREUS_GRPC=0.0.0.0:8001 in front serve all."
        )
    return lines


def _own_url(values: Settings) -> str:
    console = values.console
    if console.loopback:
        raise Conflict(
            f"NEREUS_CONSOLE={console}: other boxes cannot reach this console. Start the control plane with "
            f"NEREUS_CONSOLE=0.0.0.0:{console.port}; behind a proxy, name the proxy's address by --control URL"
        )
    host = values.address or (_outward_address() if console.host in ("0.0.0.0", "::") else console.host)
    return f"http{'s' * console.tls}://{bracketed(host)}:{console.port}"


def _outward_address() -> str:
    # Without a way to other networks, its only address is taken.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Connects without sending.
        probe.connect(_ELSEWHERE)
        return probe.getsockname()[0]
    found = [
        one.address
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family == socket.AF_INET and not is_loopback(one.address)
    ]
    if len(found) == 1:
        return found[0]
    raise Conflict(
        f"this box has no default route and {len(found)} addresses ({', '.join(found) or 'none'}): set NEREUS_ADDRESS "
        "to the one by which other boxes reach it, or name the console by --control URL"
    )


def _checked(url: str, values: Settings) -> str:
    try:
        parts = urlsplit(url.rstrip("/"))
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        # Such a name has an address, or none, but is no error of the resolver.
        parts.netloc.encode("idna")
    except ValueError:
        valid = False
    # urlsplit leaves out line ends.
    plain = not any(letter.isspace() for letter in url)
    if not valid or not plain or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise Conflict(f"--control {url}: must be http(s)://HOST or http(s)://HOST:PORT", "control")
    if parts.scheme == "http" and not is_loopback(parts.hostname) and values.tls != "off":
        raise Conflict(
            f"--control {url}: must be https:// unless its host is loopback, or with NEREUS_TLS=off, where the network "
            "encrypts",
            "control",
        )
    return url.rstrip("/")


def _authority(values: Settings, url: str) -> x509.Certificate | None:
    """The authority that other boxes see at ``url``; None: no pin needed or useful.

    Raises Conflict: the certificate cannot be used.
    """
    if not url.startswith("https://") or not values.console.tls:
        return None
    try:
        server.prepare(values)
        shown = server.shown_authority(values)
    except (CertificateError, OSError) as error:
        raise Conflict(str(error)) from None
    return x509.load_pem_x509_certificate(shown) if shown else None


def _trouble(url: str, authority: x509.Certificate | None) -> str:
    """Why the other box may not reach or trust the console, as seen from here."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    trusting = ssl.create_default_context()
    if authority is not None:
        trusting = ssl.create_default_context(cadata=authority.public_bytes(Encoding.PEM).decode())
    try:
        with socket.create_connection((parts.hostname, port), _LOOK_S) as plain:
            if parts.scheme == "https":
                trusting.wrap_socket(plain, server_hostname=parts.hostname).close()
    except ssl.SSLCertVerificationError as error:
        if authority is None:
            return (
                f"nothing that comes with the line makes the other box trust {url} ({error.verify_message}): give it "
                "the authority's file there by NEREUS_CA_FILE"
            )
        return (
            f"the other box will not trust {url} ({error.verify_message}): use a name of the console's certificate, or "
            "add this one to NEREUS_ALLOWED_HOSTS and start the control plane again"
        )
    except OSError as error:
        return f"from this box, {url} cannot be reached now: {error}"
    return ""
