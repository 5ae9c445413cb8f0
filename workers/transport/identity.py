"""A member's identity: its key, its certificate, and TLS contexts from both.

The control plane issued the certificate.

A peer is recognised by the hash of its key, which the control plane lists in each configuration
(:class:`~workers.protocol.specs.PeerSpec`); the certificate gives role and name. Dates are not checked, since boxes'
clocks differ (``docs/decisions/18-trust-between-boxes.md``).
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from workers import disk, log
from workers.certificates import (
    NO_CHECK_TIME,
    PEM,
    CertificateError,
    issued_by,
    no_password,
    private_pem,
    public_pem,
)

#: a certificate's time from its issue, and when its member asks for the next one
VALIDITY, RENEW_AFTER = datetime.timedelta(days=30), datetime.timedelta(days=10)
#: what a certificate or request that others made may raise when it is parsed
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_URI = re.compile(r"nereus:(node|gateway)/([A-Za-z0-9_.~%-]+)")

logger = log.get("identity")


def identity_file(home: Path, role: str, name: str) -> Path:
    return home / "members" / f"{role}-{disk.safe_name(name)}.pem"


class PeerIdentity(NamedTuple):
    """A member at the other end of a connection."""

    role: str
    name: str
    key_hash: str  # sha256 (hex) of its SubjectPublicKeyInfo


class MemberIdentity:
    """Key and certificate of a member, in one file that is replaced at once.

    The key is made on first use. Where the file cannot be written, the identity serves from memory, and the member
    has another key after its next start.

    Args:
        file: in a folder of the member's user alone.
        role: ``node`` or ``gateway``.
        name: the member's name in the cluster.
    """

    def __init__(self, file: Path, role: str, name: str):
        self._file, self._role, self._name = file, role, name
        self._listeners: list[Callable[[], None]] = []
        self._key, self._certificates = self._load()
        self.key_hash = key_hash(self._key.public_key())

    @property
    def pem(self) -> bytes:
        """Key, certificate chain and authorities, as PEM; CertificateError without any."""
        if not self._certificates:
            raise CertificateError(f"{self._role} {self._name!r} has no certificate of its cluster yet")
        return private_pem(self._key) + self._certificates

    @property
    def issued(self) -> bool:
        return bool(self._certificates)

    def request(self) -> str:
        """A certificate signing request (PEM) that names this member."""
        builder = x509.CertificateSigningRequestBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nereus member")])
        ).add_extension(x509.SubjectAlternativeName([member_uri(self._role, self._name)]), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def store(self, certificate: str, authorities: str) -> None:
        """Use an issued certificate from now on, and call those who want to know.

        Args:
            certificate: PEM, with the cross certificates that lead to earlier authorities.
            authorities: PEM; those that this member trusts in its peers.

        Raises:
            CertificateError: it is not this member's, or cannot be used; the present one stays.
        """
        pem = f"{certificate.strip()}\n{authorities.strip()}\n".encode()
        self._check(pem)
        if pem == self._certificates:
            return
        self._certificates = pem
        self._write()
        until = self._leaf().not_valid_after_utc.isoformat()
        logger.info("certificate_stored", member=self._name, until=until, key=self.key_hash)
        for listener in self._listeners:
            listener()

    def on_replaced(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def due(self, now: datetime.datetime | None = None) -> bool:
        """Whether there is none, a third of its life is over, or the clock jumped."""
        if not self._certificates:
            return True
        now = now or datetime.datetime.now(datetime.UTC)
        leaf = self._leaf()
        return now < leaf.not_valid_before_utc or leaf.not_valid_after_utc - now < VALIDITY - RENEW_AFTER

    def server_context(self) -> ssl.SSLContext:
        return server_context(self.pem)

    def client_context(self) -> ssl.SSLContext:
        return client_context(self.pem)

    # --- the file ---------------------------------------------------------------------------------------------------

    def _load(self) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        try:
            data = disk.read(self._file)
            if data is not None:
                return self._parse(data)
        except (OSError, CertificateError, *UNREADABLE) as error:
            # Nobody pins the key: the control plane lists the new one after the next join.
            logger.error("identity_unreadable", path=str(self._file), reason=str(error), next="makes a new key")
        self._key, self._certificates = ec.generate_private_key(ec.SECP256R1()), b""
        self._write()
        return self._key, b""

    def _parse(self, data: bytes) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        key_pem, certificates = _split(data)
        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError("its key is not an EC key")
        self._key = key
        if certificates:
            try:
                self._check(certificates)
            except CertificateError as error:
                logger.error("certificate_unusable", path=str(self._file), reason=str(error), next="asks for another")
                certificates = b""
        return key, certificates

    def _write(self) -> None:
        try:
            disk.write_private(self._file, private_pem(self._key) + self._certificates)
        except OSError as error:
            logger.error("identity_not_stored", path=str(self._file), reason=str(error))

    def _leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self._certificates)

    def _check(self, pem: bytes) -> None:
        try:
            leaf, *others = x509.load_pem_x509_certificates(pem)
            holder = _identity(leaf)
        except UNREADABLE as error:
            raise CertificateError(f"the issued certificate cannot be read: {error}") from None
        if (holder.role, holder.name) != (self._role, self._name):
            raise CertificateError(f"the issued certificate is for {holder.role} {holder.name!r}")
        if holder.key_hash != key_hash(self._key.public_key()):
            raise CertificateError("the issued certificate is for another key")
        if not any(issued_by(leaf, public_pem(other)) for other in others):
            raise CertificateError("none of the authorities that came along has issued the certificate")
        server_context(private_pem(self._key) + pem)


def server_context(pem: bytes) -> ssl.SSLContext:
    """Return a TLS 1.3 context that accepts members of the cluster alone.

    :func:`peer_of` tells who connected, and the caller checks whether that member is listed.

    Opens no file, so that a confined executor, which imported this module before, can make one.

    Args:
        pem: key, certificate chain and authorities, from :attr:`MemberIdentity.pem`.

    Raises:
        CertificateError: they cannot be used.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, pem)
    # A resumed session would skip the certificates, and saves little on links that last.
    context.num_tickets = 0
    return context


def client_context(pem: bytes) -> ssl.SSLContext:
    """A TLS 1.3 context for connections to members; as :func:`server_context`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, pem)


def peer_of(connection: ssl.SSLObject | ssl.SSLSocket) -> PeerIdentity:
    """The member at the other end after the handshake; CertificateError if none."""
    data = connection.getpeercert(True)
    if not data:
        raise CertificateError("the peer has shown no certificate")
    try:
        return _identity(x509.load_der_x509_certificate(data))
    except UNREADABLE as error:
        raise CertificateError(f"the peer's certificate cannot be read: {error}") from None


def member_uri(role: str, name: str) -> x509.UniformResourceIdentifier:
    """Role and name, as certificates have them: ``nereus:ROLE/NAME``."""
    return x509.UniformResourceIdentifier(f"nereus:{role}/{quote(name, safe='')}")


def member_of(extensions: x509.Extensions) -> tuple[str, str]:
    """Role and name in a certificate or a request.

    Raises:
        CertificateError: there is not exactly one URI, or it does not have both.
        x509.ExtensionNotFound, ValueError: the extensions cannot be read.
    """
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None:
        raise CertificateError("it does not name one member: its alternative name must be nereus:ROLE/NAME")
    return match[1], unquote(match[2], errors="strict")


def key_hash(key: ec.EllipticCurvePublicKey) -> str:
    """sha256 (hex) of the key's SubjectPublicKeyInfo (DER), as in ``PeerSpec``."""
    return hashlib.sha256(
        key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    ).hexdigest()


def stored_key(file: Path) -> str:
    """The :func:`key_hash` of the key in a member's ``file``; empty: none is readable."""
    try:
        key = serialization.load_pem_private_key(_split(file.read_bytes())[0], None)
    except (OSError, CertificateError, *UNREADABLE):
        return ""
    return key_hash(key.public_key())


def _identity(certificate: x509.Certificate) -> PeerIdentity:
    return PeerIdentity(*member_of(certificate.extensions), key_hash(certificate.public_key()))


def _split(pem: bytes) -> tuple[bytes, bytes]:
    blocks = PEM.findall(pem)
    keys = [block for block in blocks if b"PRIVATE KEY" in block]
    if len(keys) != 1:
        raise CertificateError(f"there are {len(keys)} keys, not one")
    return keys[0], b"".join(block for block in blocks if b"PRIVATE KEY" not in block)


def _context(protocol: int, pem: bytes) -> ssl.SSLContext:
    key, certificates = _split(pem)
    if not certificates:
        raise CertificateError("the member has no certificate of its cluster yet")
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A peer is known by its listed key, wherever it is.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= NO_CHECK_TIME
    try:
        parsed = x509.load_pem_x509_certificates(certificates)
        blocks = PEM.findall(certificates)
        roots = [block for block, one in zip(blocks, parsed, strict=True) if one.subject == one.issuer]
        chain = [block for block in blocks if block not in roots]
        if not roots:
            raise CertificateError("the member's certificate came without an authority")
        context.load_verify_locations(cadata=b"".join(roots).decode())
        _load_chain(context, b"".join(chain), key)
    except (OSError, *UNREADABLE) as error:
        raise CertificateError(f"the member's certificate cannot be used: {error}") from None
    return context


def _load_chain(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Load them through pipes: a confined process can neither open nor make files."""
    ends = [_filled(chain), _filled(key)]
    try:
        context.load_cert_chain(*(f"/proc/self/fd/{end}" for end in ends), password=no_password)
    finally:
        for end in ends:
            os.close(end)


def _filled(data: bytes) -> int:
    """The reading end of a pipe that holds ``data`` and ends there."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.write(writing, data) != len(data):
            raise OSError(f"a pipe holds less than {len(data)} bytes")
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading
