"""Whom outgoing connections trust: the control plane by its pinned fingerprint, all else by authorities.

``NEREUS_CONTROL_FINGERPRINT`` is the pin. The control plane's page :data:`PATH` has the authority, which is public. A
member asks for it once, over a connection that cannot be verified yet and on which nothing else is sent, compares it
with the pin, and keeps it in its home. From then on each connection is verified by it before a token or credential is
sent. An authority that replaces it is used where the one before certifies it
(``docs/decisions/21-boxes-and-releases.md``).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from workers import disk, log
from workers.settings import Settings

from . import server
from .authority import NO_CHECK_TIME, blocks, issued_by, public_pem

#: where a control plane shows its authority, and that of the authority before it, as PEM
PATH = "/authority.pem"
#: seconds between two looks whether the authority was replaced
FOLLOW_EVERY_S = 3600.0
_TIMEOUT_S = 5.0
#: bytes of an HTTP answer that are read
_ANSWER_BYTES = 65_536
_PINNED = b"pinned by sha256:"

logger = log.get("trust")


class TrustError(Exception):
    """The control plane is not the pinned one; says why, and what to do."""


def trust_file(settings: Settings) -> Path | None:
    """The file by which clients trust this box's servers; None where none uses TLS."""
    if not settings.tls_used:
        return None
    if settings.tls_cert is None:
        return server.own(settings).authority_file
    return settings.ca_file or Path(ssl.get_default_verify_paths().cafile or settings.tls_cert)


def client_context(settings: Settings, url: str) -> ssl.SSLContext | None:
    """Trust for an outgoing connection; None where ``url`` uses no TLS.

    Raises:
        OSError: the authorities cannot be read (``ssl.SSLError`` is one).
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "wss"):
        return None
    if settings.control_fingerprint:
        authority = _kept(settings)
        if authority is None:
            raise FileNotFoundError(f"{authority_file(settings)}: the control plane's authority was not fetched yet")
        return ssl.create_default_context(cadata=public_pem(authority).decode())
    if settings.console.tls and parts.netloc == settings.console.local:
        return _own_console(settings)
    return ssl.create_default_context(cafile=settings.ca_file)


async def control_context(settings: Settings) -> ssl.SSLContext | None:
    """Return a context that trusts the control plane; None without TLS.

    Its authority is fetched where it is pinned and not here yet.

    Raises:
        TrustError: the control plane shows another authority than the pinned one.
        OSError: the authorities cannot be obtained.
    """
    await obtain(settings)
    return client_context(settings, settings.control_url)


def _own_console(settings: Settings) -> ssl.SSLContext:
    """Trust this box's own console by its certificate alone, whatever the clock."""
    if settings.tls_cert is None:
        context = ssl.create_default_context(cafile=server.own(settings).authority_file)
    else:
        # The certificate's names are for clients elsewhere; here the certificate itself is known.
        shown = (block for block in blocks(settings.tls_cert.read_bytes()) if b" CERTIFICATE-" in block)
        context = ssl.create_default_context(cadata=next(shown, b"").decode())
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags |= NO_CHECK_TIME
    return context


# --- the pin ----------------------------------------------------------------------------------------------------------


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate (DER) as 64 hexadecimal digits.

    ``openssl x509 -fingerprint -sha256`` prints the same digest.
    """
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def authority_file(settings: Settings) -> Path:
    """The file in which a member keeps the authority of its control plane."""
    return settings.home / "members" / "control-authority.pem"


async def obtain(settings: Settings) -> None:
    """Fetch the pinned authority where this home does not have it, and keep it.

    Raises:
        TrustError: the control plane shows another one, or none.
        OSError: it cannot be reached, or the authority cannot be kept.
    """
    if not settings.control_fingerprint or _kept(settings) is not None:
        return
    # For the one request whose answer is verified by itself.
    shown = (await _shown(settings, unverified()))[0]
    if fingerprint(shown) != settings.control_fingerprint:
        raise TrustError(
            f"NEREUS_CONTROL_FINGERPRINT: {settings.control_url} shows the authority sha256:{fingerprint(shown)}, "
            f"and sha256:{settings.control_fingerprint} is pinned. No token was sent. Either something else answers at "
            "this address, or the control plane's authority was replaced: then run nereus join there again"
        )
    _keep(settings, shown)


async def follow(settings: Settings) -> None:
    """Use an authority that the pinned one certifies, until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_EVERY_S)
        try:
            await refresh(settings)
        except (TrustError, OSError) as error:
            logger.warning("authority_not_compared", reason=str(error) or type(error).__name__)


async def refresh(settings: Settings) -> bool:
    """Whether another authority is kept now.

    Raises:
        TrustError: the control plane shows one that the one before does not certify.
        OSError: the control plane cannot be reached.
    """
    authority = _kept(settings)
    if not settings.control_fingerprint or authority is None:
        return False
    shown, *by_earlier = await _shown(settings, client_context(settings, settings.control_url))
    if shown == authority:
        return False
    if not any(_certifies(authority, cross, shown) for cross in by_earlier):
        raise TrustError(f"{settings.control_url} shows an authority that the one in use does not certify")
    _keep(settings, shown)
    return True


def _certifies(earlier: x509.Certificate, cross: x509.Certificate, later: x509.Certificate) -> bool:
    """Whether ``cross`` is the later authority, certified by the earlier one."""
    return issued_by(cross, earlier) and cross.subject == later.subject and cross.public_key() == later.public_key()


async def _shown(settings: Settings, trusting: ssl.SSLContext) -> list[x509.Certificate]:
    """The authority that the control plane shows, and the one that certifies it."""
    async with asyncio.timeout(_TIMEOUT_S):
        status, body = await get(settings.control_url + PATH, trusting)
    try:
        shown = [x509.load_pem_x509_certificate(block) for block in blocks(body)]
    except ValueError:
        shown = []
    if status != 200 or not shown:
        what = f"HTTP {status}" if status is not None else "no HTTP"
        raise TrustError(
            f"{settings.control_url}{PATH} shows no authority ({what}): must be a control plane of this release or a "
            "later one. No token was sent"
        )
    return shown


async def get(url: str, context: ssl.SSLContext | None) -> tuple[int | None, bytes]:
    """GET once: the status, None where the answer is no HTTP, and the body's first 64 KiB."""
    parts = urlsplit(url)
    port = parts.port or (80 if context is None else 443)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        writer.write(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        answer = b""
        while piece := await reader.read(_ANSWER_BYTES - len(answer)):
            answer += piece
    finally:
        writer.close()
    status = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return (None if status is None else int(status[1])), answer.partition(b"\r\n\r\n")[2]


def unverified() -> ssl.SSLContext:
    """For connections that stay on this box, to a certificate of any name, and for what is verified by itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _kept(settings: Settings) -> x509.Certificate | None:
    """The authority in this home; None where there is none for this pin."""
    data = disk.read(authority_file(settings))
    if data is None or not data.startswith(_PINNED + settings.control_fingerprint.encode() + b"\n"):
        return None
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        return None


def _keep(settings: Settings, authority: x509.Certificate) -> None:
    pinned = _PINNED + settings.control_fingerprint.encode() + b"\n"
    disk.write_private(authority_file(settings), pinned + public_pem(authority))
    logger.info("authority_kept", path=str(authority_file(settings)), fingerprint=fingerprint(authority))
