"""A member's trust in its control plane, whose authority a fingerprint pins.

``NEREUS_CONTROL_FINGERPRINT`` is the pin.

The control plane's page :data:`PATH` has the authority, which is public. A member asks for it once, over a connection
that cannot be verified yet and on which nothing else is sent, compares it with the pin, and keeps it in its home. From
then on each connection is verified by it before a token or credential is sent. An authority that replaces it is used
where the one before certifies it (``docs/decisions/21-boxes-and-releases.md``).
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

from . import disk, log
from .certificates import issued_by, public_pem
from .settings import Settings

#: where a control plane shows its authority, and that of the authority before it, as PEM
PATH = "/authority.pem"
#: seconds between two looks whether the authority was replaced
FOLLOW_EVERY_S = 3600.0
_TIMEOUT_S = 5.0
#: bytes of an answer that are read
_ANSWER_BYTES = 65_536
_PINNED = b"pinned by sha256:"
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)

logger = log.get("trust")


class TrustError(Exception):
    """The control plane is not the pinned one; says why, and what to do."""


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate (DER) as 64 hexadecimal digits.

    ``openssl x509 -fingerprint -sha256`` prints the same digest.
    """
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def authority_file(settings: Settings) -> Path:
    """The file in which a member keeps the authority of its control plane."""
    return settings.home / "members" / "control-authority.pem"


def context(settings: Settings) -> ssl.SSLContext:
    """Trust the pinned authority alone; OSError if it was not fetched yet."""
    authority = _kept(settings)
    if authority is None:
        raise FileNotFoundError(f"{authority_file(settings)}: the control plane's authority was not fetched yet")
    return ssl.create_default_context(cadata=public_pem(authority).decode())


async def obtain(settings: Settings) -> None:
    """Fetch the pinned authority where this home does not have it, and keep it.

    Raises:
        TrustError: the control plane shows another one, or none.
        OSError: it cannot be reached, or the authority cannot be kept.
    """
    if not settings.control_fingerprint or _kept(settings) is not None:
        return
    shown = await _shown(settings, _unverified())
    if fingerprint(shown[0]) != settings.control_fingerprint:
        raise TrustError(
            f"NEREUS_CONTROL_FINGERPRINT: {settings.control_url} shows the authority sha256:{fingerprint(shown[0])}, "
            f"and sha256:{settings.control_fingerprint} is pinned. No token was sent. Either something else answers at "
            "this address, or the control plane's authority was replaced: then run nereus join there again"
        )
    _keep(settings, shown[0])
    logger.info("authority_kept", path=str(authority_file(settings)), fingerprint=fingerprint(shown[0]))


async def follow(settings: Settings) -> None:
    """Use an authority that the pinned one certifies, until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_EVERY_S)
        try:
            if await refresh(settings):
                logger.info("authority_replaced", path=str(authority_file(settings)))
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
    shown, *by_earlier = await _shown(settings, context(settings))
    if shown == authority:
        return False
    if not any(_certifies(authority, cross, shown) for cross in by_earlier):
        raise TrustError(f"{settings.control_url} shows an authority that the one in use does not certify")
    _keep(settings, shown)
    return True


def _certifies(earlier: x509.Certificate, cross: x509.Certificate, later: x509.Certificate) -> bool:
    """Whether ``cross`` is the later authority, certified by the earlier one."""
    by_earlier = issued_by(cross, public_pem(earlier))
    return by_earlier and cross.subject == later.subject and cross.public_key() == later.public_key()


async def _shown(settings: Settings, trusting: ssl.SSLContext) -> list[x509.Certificate]:
    """The authority that the control plane shows, and the one that certifies it."""
    url = urlsplit(settings.control_url)
    request = f"GET {PATH} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n"
    async with asyncio.timeout(_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 443, ssl=trusting)
        try:
            writer.write(request.encode())
            answer = b""
            while len(answer) < _ANSWER_BYTES and (piece := await reader.read(_ANSWER_BYTES - len(answer))):
                answer += piece
        finally:
            writer.close()
    status = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    try:
        shown = [x509.load_pem_x509_certificate(one) for one in CERTIFICATE.findall(answer)]
    except ValueError:
        shown = []
    if status is None or status[1] != b"200" or not shown:
        what = f"HTTP {int(status[1])}" if status is not None else "no HTTP"
        raise TrustError(
            f"{settings.control_url}{PATH} shows no authority ({what}): must be a control plane of this release or a "
            "later one. No token was sent"
        )
    return shown


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


def _unverified() -> ssl.SSLContext:
    """For the one request whose answer is verified by itself."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return trusting
