"""TLS contexts from the settings, for servers and for clients.

They hold the appliance's identity as a server, and its trust as a client.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from . import control_trust, log
from .certificates import NO_CHECK_TIME, CertificateError, OwnCertificate, box_names, no_password, top_of_chain
from .settings import Settings

#: seconds between two looks at the certificate's files
LOOK_EVERY_S = 10.0
#: TLS 1.2 with authenticated encryption and forward secrecy alone; all of TLS 1.3's are such
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

logger = log.get("tls")


class ServerIdentity:
    """A server's context, which follows its certificate while connections go on.

    Args:
        protocols: for ALPN, such as ``h2``.

    Raises:
        CertificateError: certificate or key cannot be used.
    """

    def __init__(self, settings: Settings, *protocols: str):
        self._settings = settings
        self._pem = b""
        self._trouble = ""
        self.context = _server_context(protocols)
        self._update()

    async def watch(self) -> None:
        """Use replaced files until cancelled, if they can be used."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.refresh()

    def refresh(self) -> bool:
        """Whether another certificate is used now; trouble is logged once."""
        try:
            return self._update()
        except (CertificateError, OSError) as error:
            self._note(str(error))
            return False

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.error("certificate_not_replaced", reason=trouble)
        self._trouble = trouble

    def _update(self) -> bool:
        pem, trouble = _identity(self._settings)
        self._note(trouble)
        if pem == self._pem:
            return False
        # First elsewhere: a certificate without its key would leave the context in use without either.
        _load(_server_context(()), pem, self._settings)
        _load(self.context, pem, self._settings)
        self._pem = pem
        logger.info("certificate_used", path=str(self._settings.tls_cert or own(self._settings).server_file))
        return True


def own(settings: Settings) -> OwnCertificate:
    """The appliance's own certificate, whether it is used or not."""
    return OwnCertificate(settings.home / "tls")


def rotate_own(settings: Settings, authority: bool) -> None:
    """Replace the own certificate, with ``authority`` its authority as well."""
    own(settings).rotate([*settings.host_names, *box_names()], authority)


def shown_authority(settings: Settings) -> bytes:
    """Return the authority by which others trust this box's servers, as PEM.

    Its certificate by the authority before it follows, if there was one. Empty where there is no certificate, and where
    a certificate of yours comes without its authority.
    """
    if settings.tls_cert is None:
        return own(settings).shown_authority()
    ca_file = settings.ca_file.read_bytes() if settings.ca_file is not None else b""
    return top_of_chain(settings.tls_cert.read_bytes(), ca_file)


def prepare(settings: Settings) -> None:
    """Make the own certificate if need be; CertificateError if it cannot be used."""
    if settings.tls_used:
        ServerIdentity(settings)


def trust_file(settings: Settings) -> Path | None:
    """The file by which clients trust this box's servers; None where none uses TLS."""
    if not settings.tls_used:
        return None
    if settings.tls_cert is None:
        return own(settings).authority_file
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
        return control_trust.context(settings)
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
    await control_trust.obtain(settings)
    return client_context(settings, settings.control_url)


def _own_console(settings: Settings) -> ssl.SSLContext:
    """Trust this box's own console by its certificate alone, whatever the clock."""
    if settings.tls_cert is None:
        context = ssl.create_default_context(cafile=own(settings).authority_file)
    else:
        # The certificate's names are for clients elsewhere; here the certificate itself is known.
        certificate = control_trust.CERTIFICATE.search(settings.tls_cert.read_bytes())
        context = ssl.create_default_context(cadata=certificate[0].decode() if certificate else "")
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags |= NO_CHECK_TIME
    return context


def _server_context(protocols: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    # The one curve that every client has; OpenSSL's default set has curves that scanners object to.
    context.set_ecdh_curve("prime256v1")
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _identity(settings: Settings) -> tuple[bytes, str]:
    """Return key and certificate chain, and why renewal failed.

    The second is about an own certificate, and empty if it did not fail: the present certificate serves on.

    Raises:
        CertificateError, OSError: there is no certificate that can be used.
    """
    if settings.tls_cert is None:
        certificate = own(settings)
        trouble = ""
        try:
            if certificate.ensure([*settings.host_names, *box_names()]):
                logger.info("certificate_issued", path=str(certificate.server_file))
        except (CertificateError, OSError) as error:
            if not certificate.server_file.exists():
                raise
            trouble = str(error)
        return certificate.server_file.read_bytes(), trouble
    try:
        return settings.tls_key.read_bytes() + b"\n" + settings.tls_cert.read_bytes(), ""
    except OSError as error:
        raise CertificateError(f"NEREUS_TLS_CERT, NEREUS_TLS_KEY: {error}") from None


def _load(context: ssl.SSLContext, pem: bytes, settings: Settings) -> None:
    # Certificate and key from one file that nobody else can change meanwhile.
    handle = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(handle, pem)
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=no_password)
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"NEREUS_TLS_CERT={settings.tls_cert}, NEREUS_TLS_KEY={settings.tls_key}: must be a PEM chain that begins "
            f"with the server's certificate, and its key without a passphrase: {error}"
        ) from None
    finally:
        with suppress(OSError):
            os.close(handle)
