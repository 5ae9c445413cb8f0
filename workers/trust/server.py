"""This box's identity as a server: a certificate of yours, or one of the appliance's own authority.

One file, ``authority.pem``, makes clients trust the box for good; the own certificate is issued anew when names or
addresses of the box change, and long before its end (``docs/decisions/18-trust-between-boxes.md``).
"""

from __future__ import annotations

import asyncio
import datetime
import fcntl
import ipaddress
import os
import re
import ssl
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from workers import disk, log
from workers.settings import Settings

from .authority import START, Authority, CertificateError, blocks, issued_by, load_chain, private_pem, public_pem, split

#: no release is older: a clock before it is wrong
RELEASED = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: a server certificate's time from its issue, and what is left of it when the next one is issued
SERVER_VALIDITY, RENEW_BEFORE = datetime.timedelta(days=3653), datetime.timedelta(days=1826)
#: names and addresses of one certificate; earlier ones of the box stay in it while there is room
MAX_NAMES = 64
#: seconds between two looks at the certificate's files
LOOK_EVERY_S = 10.0
#: TLS 1.2 with authenticated encryption and forward secrecy alone; all of TLS 1.3's are such
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")

logger = log.get("tls")


class OwnCertificate:
    """The files of an own authority under ``folder``, for several processes at once."""

    def __init__(self, folder: Path):
        self._folder = folder
        #: what clients trust
        self.authority_file = folder / "authority.pem"
        #: all of the authority; what is above follows it
        self.authority_key_file = folder / "authority-key.pem"
        #: key and certificate chain in one file, so that all are replaced at once
        self.server_file = folder / "server.pem"
        # Release 0.2.0 stored the key alone, by whom the authority is certified, and one that is not in use yet.
        self._cross_file = folder / "authority-cross.pem"
        self._next_file = folder / "authority-next.pem"

    def ensure(self, names: Iterable[str], now: datetime.datetime | None = None) -> bool:
        """Make the missing files, and renew the server certificate if it ends soon or lacks one of ``names``.

        Returns:
            Whether the server certificate was issued now.

        Raises:
            CertificateError: the authority's files cannot be read; they are never replaced.
            OSError: the folder cannot be written.
        """
        now = now or _now()
        wanted = _wanted(names)
        if self._good(wanted, now):
            return False
        with self._locked():
            authority = self._authority()
            if self._good(wanted, now):
                return False
            self._issue_server(authority, wanted, now)
        return True

    def shown_authority(self) -> bytes:
        """The authority (PEM), and itself by the one before it; empty before it is made."""
        stored = blocks(disk.read(self.authority_key_file) or b"")
        return (disk.read(self.authority_file) or b"") + b"".join(stored[2:3])

    def rotate(self, names: Iterable[str], authority: bool = False) -> None:
        """Replace the server certificate with its key; servers use the new one within 10 s.

        Args:
            authority: replace the authority, too. Servers then send its certificate by the earlier one along, so that
                clients which trust either are served.

        Raises:
            CertificateError, OSError: as :meth:`ensure`; what was there stays.
        """
        with self._locked():
            issuer = self._authority()
            if authority:
                issuer = self._store(Authority.make(before=issuer))
            self._issue_server(issuer, _wanted(names), _now())

    def _issue_server(self, authority: Authority, wanted: list[str], now: datetime.datetime) -> None:
        server = self._server()
        earlier = [name for name in names_of(server) if name not in wanted] if server is not None else []
        key = ec.generate_private_key(ec.SECP256R1())
        chain = authority.issue(
            key.public_key(),
            [_general_name(name) for name in (wanted + earlier)[:MAX_NAMES]],
            (START, max(now, RELEASED) + SERVER_VALIDITY),
            (ExtendedKeyUsageOID.SERVER_AUTH,),
            os.uname().nodename[:64] or "nereus",
        )
        disk.write_private(self.server_file, private_pem(key) + chain)

    def _good(self, wanted: list[str], now: datetime.datetime) -> bool:
        server, shown = self._server(), disk.read(self.authority_file)
        if server is None or server.not_valid_after_utc - max(now, RELEASED) < RENEW_BEFORE:
            return False
        stored = blocks(disk.read(self.authority_key_file) or b"")
        if shown is None or shown not in stored[1:2] or self._next_file.exists():
            return False
        authority = _certificate(shown)
        issued = authority is not None and issued_by(server, authority)
        return issued and set(wanted[:MAX_NAMES]) <= set(names_of(server))

    def _server(self) -> x509.Certificate | None:
        data = disk.read(self.server_file) or b""
        try:
            serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError):
            # It is issued anew: nobody pins it.
            return None
        return _certificate(data)

    def _authority(self) -> Authority:
        """The authority, made if there is none; a replacement that was cut off is completed."""
        if (cut_off := disk.read(self._next_file)) is not None:
            try:
                self._store(Authority.load(cut_off))
            except CertificateError as error:
                raise CertificateError(f"{self._next_file}: {error}") from None
            self._next_file.unlink()
        stored, shown = disk.read(self.authority_key_file), disk.read(self.authority_file)
        if shown is None:
            # Where a first start was cut off between the two files, no client has the authority yet.
            return self._store(Authority.make())
        try:
            if stored is None:
                raise CertificateError("its key is missing")
            alone = len(blocks(stored)) < 2
            authority = Authority.load(stored + shown + (disk.read(self._cross_file) or b"") if alone else stored)
            if shown not in (public_pem(authority.certificate), *authority.earlier[1:]):
                raise CertificateError("certificate and key do not belong together")
        except CertificateError as error:
            raise CertificateError(
                f"{self.authority_file} with {self.authority_key_file.name}: {error}; restore both from a backup, or "
                "remove both, and give clients the new authority"
            ) from None
        current = stored == authority.pem and shown == public_pem(authority.certificate)
        return authority if current else self._store(authority)

    def _store(self, authority: Authority) -> Authority:
        disk.write_private(self.authority_key_file, authority.pem)
        disk.write_private(self.authority_file, public_pem(authority.certificate))
        return authority

    @contextmanager
    def _locked(self):
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class ServerIdentity:
    """A server's context, which follows its certificate while connections go on.

    Args:
        protocols: for ALPN, such as ``h2``.

    Raises:
        CertificateError: certificate or key cannot be used.
    """

    def __init__(self, settings: Settings, *protocols: str):
        self._settings = settings
        self._pem = b"", b""
        self._trouble = ""
        self.context = _context(protocols)
        self._update()

    async def watch(self) -> None:
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
        key, chain, trouble = _identity(self._settings)
        self._note(trouble)
        if (key, chain) == self._pem:
            return False
        # First elsewhere: a certificate without its key would leave the context in use without either.
        for context in (_context(()), self.context):
            try:
                load_chain(context, chain, key)
            except (OSError, ValueError) as error:
                raise CertificateError(
                    f"NEREUS_TLS_CERT={self._settings.tls_cert}, NEREUS_TLS_KEY={self._settings.tls_key}: must be a "
                    f"PEM chain that begins with the server's certificate, and its key without a passphrase: {error}"
                ) from None
        self._pem = key, chain
        logger.info("certificate_used", path=str(self._settings.tls_cert or own(self._settings).server_file))
        return True


def own(settings: Settings) -> OwnCertificate:
    return OwnCertificate(settings.home / "tls")


def rotate_own(settings: Settings, authority: bool) -> None:
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


def top_of_chain(chain: bytes, more: bytes = b"") -> bytes:
    """Return the self-signed certificate above a server's chain (PEM); empty: none.

    Args:
        more: authorities that may be above the chain.

    Raises:
        CertificateError: they are not certificates.
    """
    try:
        top, *others = x509.load_pem_x509_certificates(chain)
        others += x509.load_pem_x509_certificates(more) if more else []
    except ValueError as error:
        raise CertificateError(f"the certificate's chain cannot be read: {error}") from None
    while not issued_by(top, top):
        issuer = next((other for other in others if issued_by(top, other)), None)
        if issuer is None:
            return b""
        # Each is used once, so that authorities that certify each other end the search.
        others.remove(issuer)
        top = issuer
    return public_pem(top)


def _context(protocols: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    # The one curve that every client has; OpenSSL's default set has curves that scanners object to.
    context.set_ecdh_curve("prime256v1")
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _identity(settings: Settings) -> tuple[bytes, bytes, str]:
    """Return key and certificate chain, and why an own certificate could not be renewed; the present one serves on.

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
        return *split(certificate.server_file.read_bytes()), trouble
    try:
        return settings.tls_key.read_bytes(), settings.tls_cert.read_bytes(), ""
    except OSError as error:
        raise CertificateError(f"NEREUS_TLS_CERT, NEREUS_TLS_KEY: {error}") from None


# --- names ------------------------------------------------------------------------------------------------------------


def _canonical(name: str) -> str:
    """A host name or address as certificates have it; empty where it can be neither."""
    name = name.strip("[]")
    try:
        address = ipaddress.ip_address(name)
        return "" if address.is_unspecified else str(address)
    except ValueError:
        name = name.lower().rstrip(".")
        return name if len(name) <= 253 and _DNS_NAME.fullmatch(name) else ""


def box_names() -> list[str]:
    """Names and addresses of this box, loopback included; asks no name server."""
    host = os.uname().nodename
    names = [host, "localhost", "127.0.0.1", "::1"]
    if "." not in host:
        names.append(f"{host}.local")
    for interface in psutil.net_if_addrs().values():
        for entry in interface:
            try:
                address = ipaddress.ip_address(entry.address)
            except ValueError:
                continue
            if not address.is_link_local:
                names.append(str(address))
    return names


def _certificate(pem: bytes) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        return None


def names_of(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    dns = extension.get_values_for_type(x509.DNSName)
    return [*dns, *map(str, extension.get_values_for_type(x509.IPAddress))]


def _wanted(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in map(_canonical, names) if name))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
