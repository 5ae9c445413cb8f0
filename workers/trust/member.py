"""A member's identity: its key, the certificate that the control plane issued, and TLS contexts from both.

A peer is recognised by the hash of its key, which the control plane lists in each configuration
(:class:`~workers.protocol.specs.PeerSpec`); the certificate gives role and name. Dates are not checked, since boxes'
clocks differ (``docs/decisions/18-trust-between-boxes.md``): each join renews the certificate, and the control plane
renews it on connections that last.
"""

from __future__ import annotations

import datetime
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from workers import disk, log
from workers.protocol.control import MOST_REQUEST, IssuedCertificate

from .authority import (
    NO_CHECK_TIME,
    UNREADABLE,
    Authority,
    CertificateError,
    issued_by,
    key_hash,
    load_chain,
    private_pem,
    public_pem,
    split,
)

#: a certificate's time from its issue; it begins earlier, for members whose clocks are behind
VALIDITY, SKEW = datetime.timedelta(days=30), datetime.timedelta(days=1)
#: earliest and latest issue that certificates can express, with their validity
_EARLIEST = datetime.datetime(1950, 1, 3, tzinfo=datetime.UTC)
_LATEST = datetime.datetime(9999, 11, 1, tzinfo=datetime.UTC)

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
        try:
            self._key, self._certificates = self._load()
        except (OSError, CertificateError, *UNREADABLE) as error:
            # Nobody pins the key: the control plane lists the new one after the next join.
            if file.exists():
                logger.error("identity_unreadable", path=str(file), reason=str(error), next="makes a new key")
            self._key, self._certificates = ec.generate_private_key(ec.SECP256R1()), b""
            self._write()

    @property
    def key_hash(self) -> str:
        return key_hash(self._key.public_key())

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

    def renew(self, issued: IssuedCertificate) -> None:
        """Take what the control plane issued; where nothing can be taken, the present certificate stays."""
        if issued.refused:
            logger.error("certificate_refused", reason=issued.refused)
        elif issued.certificate:
            try:
                self.store(issued.certificate, issued.authorities)
            except CertificateError as error:
                logger.error("certificate_unusable", reason=str(error))

    def store(self, certificate: str, authorities: str) -> None:
        """Use an issued certificate from now on, and call those who want to know.

        Args:
            certificate: PEM, with the cross certificates that lead to earlier authorities.
            authorities: PEM; those that this member trusts in its peers.

        Raises:
            CertificateError: it is not this member's, or cannot be used; the present one stays.
        """
        pem = f"{certificate.strip()}\n{authorities.strip()}\n".encode()
        leaf = self._check(self._key, pem)
        if pem == self._certificates:
            return
        self._certificates = pem
        self._write()
        logger.info(
            "certificate_stored", member=self._name, until=leaf.not_valid_after_utc.isoformat(), key=self.key_hash
        )
        for listener in self._listeners:
            listener()

    def on_replaced(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def server_context(self) -> ssl.SSLContext:
        return server_context(self.pem)

    def client_context(self) -> ssl.SSLContext:
        return client_context(self.pem)

    def _load(self) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        key_pem, certificates = split(self._file.read_bytes())
        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError("its key is not an EC key")
        if certificates:
            try:
                self._check(key, certificates)
            except CertificateError as error:
                logger.error("certificate_unusable", path=str(self._file), reason=str(error), next="asks for another")
                certificates = b""
        return key, certificates

    def _write(self) -> None:
        try:
            disk.write_private(self._file, private_pem(self._key) + self._certificates)
        except OSError as error:
            logger.error("identity_not_stored", path=str(self._file), reason=str(error))

    def _check(self, key: ec.EllipticCurvePrivateKey, pem: bytes) -> x509.Certificate:
        try:
            leaf, *others = x509.load_pem_x509_certificates(pem)
            holder = _identity(leaf)
        except UNREADABLE as error:
            raise CertificateError(f"the issued certificate cannot be read: {error}") from None
        if holder[:2] != (self._role, self._name):
            raise CertificateError(f"the issued certificate is for {holder.role} {holder.name!r}")
        if holder.key_hash != key_hash(key.public_key()):
            raise CertificateError("the issued certificate is for another key")
        if not any(issued_by(leaf, other) for other in others):
            raise CertificateError("none of the authorities that came along has issued the certificate")
        server_context(private_pem(key) + pem)
        return leaf


def stored_key(file: Path) -> str:
    """The :func:`key_hash` of the key in a member's ``file``; empty: none is readable."""
    try:
        key = serialization.load_pem_private_key(split(file.read_bytes())[0], None)
    except (OSError, CertificateError, *UNREADABLE):
        return ""
    return key_hash(key.public_key())


# --- TLS between members ----------------------------------------------------------------------------------------------


def server_context(pem: bytes) -> ssl.SSLContext:
    """Return a TLS 1.3 context that accepts members of the cluster alone.

    :func:`peer_of` tells who connected, and the caller checks whether that member is listed. Opens no file, so that a
    confined executor, which imported this module before, can make one.

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


def _context(protocol: int, pem: bytes) -> ssl.SSLContext:
    key, certificates = split(pem)
    if not certificates:
        raise CertificateError("the member has no certificate of its cluster yet")
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A peer is known by its listed key, wherever it is.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= NO_CHECK_TIME
    try:
        roots, chain = b"", b""
        for certificate in x509.load_pem_x509_certificates(certificates):
            if certificate.subject == certificate.issuer:
                roots += public_pem(certificate)
            else:
                chain += public_pem(certificate)
        if not roots:
            raise CertificateError("the member's certificate came without an authority")
        context.load_verify_locations(cadata=roots.decode())
        load_chain(context, chain, key)
    except (OSError, *UNREADABLE) as error:
        raise CertificateError(f"the member's certificate cannot be used: {error}") from None
    return context


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


def _member_of(extensions: x509.Extensions) -> tuple[str, str]:
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    match = _URI.fullmatch(uris[0]) if len(uris) == 1 else None
    if match is None:
        raise CertificateError("it does not name one member: its alternative name must be nereus:ROLE/NAME")
    return match[1], unquote(match[2], errors="strict")


def _identity(certificate: x509.Certificate) -> PeerIdentity:
    return PeerIdentity(*_member_of(certificate.extensions), key_hash(certificate.public_key()))


# --- the control plane's part -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IssuedMember:
    certificate: str  # PEM, with the way to the earlier authority
    key_hash: str  # of its key
    until: datetime.datetime  # its end


def certify(authority: Authority, request: str, role: str, name: str, now: datetime.datetime) -> IssuedMember:
    key = requested_key(request, role, name)
    now = min(max(now, _EARLIEST), _LATEST)
    certificate = authority.issue(
        key,
        [member_uri(role, name)],
        (now - SKEW, now + VALIDITY),
        (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
        "nereus member",
    )
    until = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return IssuedMember(certificate.decode(), key_hash(key), until)


def requested_key(request: str, role: str, name: str) -> ec.EllipticCurvePublicKey:
    """The key of a member's certificate signing request.

    Raises:
        CertificateError: it is malformed, its key is not of P-256, its signature is wrong, or it names another member.
    """
    if len(request) > MOST_REQUEST:
        raise CertificateError(f"a certificate request has at most {MOST_REQUEST} characters, this one {len(request)}")
    try:
        parsed = x509.load_pem_x509_csr(request.encode())
        key = parsed.public_key()
        # First the kind of key: a signature by a huge RSA key would take long to verify.
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise CertificateError("the key of a certificate request must be an EC key of P-256")
        if not parsed.is_signature_valid:
            raise CertificateError("the certificate request is not signed by its own key")
        named = _member_of(parsed.extensions)
    except CertificateError as error:
        raise CertificateError(f"certificate request refused: {error}") from None
    except UNREADABLE as error:
        raise CertificateError(f"certificate request refused: it cannot be read: {error}") from None
    if named != (role, name):
        raise CertificateError(
            f"certificate request refused: it names {named[0]} {named[1]!r}, and the member is {role} {name!r}"
        )
    return key
