"""An authority that issues certificates: of a box's servers, or of a cluster's members.

Authorities overlap: the one before certifies the next, so that those who trust either accept what both have issued.
Validity allows for clocks that are years off (``docs/decisions/18-trust-between-boxes.md``).
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import secrets
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: the earliest moment that a clock shows, so that a box or client without one accepts the certificate
START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: RFC 5280's "no well-defined end": an authority that ends would lock out every client on one day
END = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the standard library does not name
NO_CHECK_TIME = 0x200000
#: what keys, certificates and requests that others made may raise when they are parsed
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class CertificateError(Exception):
    """A certificate or key cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Authority:
    """An authority, by its key.

    Attributes:
        earlier: certificates (PEM): its own by the authority before it, and that authority's; empty: it is the first.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    earlier: tuple[bytes, ...] = ()

    @classmethod
    def make(cls, purpose: str = "Nereus", before: Authority | None = None) -> Authority:
        """A new authority, named after its purpose and the box, and certified by the one before it."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"{purpose} {os.uname().nodename[:32]} {secrets.token_hex(4)}")
        # A self-signed one may certify its successor and servers, one by an issuer servers alone.
        certificate = _sign(key.public_key(), subject, None, key, (START, END), *_certifies(1))
        if before is None:
            return cls(key, certificate)
        cross = _sign(key.public_key(), subject, before.certificate, before.key, (START, END), *_certifies(0))
        return cls(key, certificate, (public_pem(cross), public_pem(before.certificate)))

    @classmethod
    def load(cls, pem: bytes) -> Authority:
        try:
            key, certificates = split(pem)
            own, *earlier = blocks(certificates) or [b""]
            authority = cls(
                serialization.load_pem_private_key(key, None), x509.load_pem_x509_certificate(own), tuple(earlier[:2])
            )
            if authority.key.public_key() != authority.certificate.public_key():
                raise ValueError("certificate and key do not belong together")
        except (CertificateError, *UNREADABLE) as error:
            raise CertificateError(f"the authority cannot be used: {error}") from None
        return authority

    @property
    def pem(self) -> bytes:
        return private_pem(self.key) + public_pem(self.certificate) + b"".join(self.earlier)

    @property
    def trusted(self) -> bytes:
        """Certificates (PEM) of this authority and the one before it."""
        return public_pem(self.certificate) + b"".join(self.earlier[1:])

    @property
    def key_hash(self) -> str:
        return key_hash(self.key.public_key())

    def issue(
        self,
        key: ec.EllipticCurvePublicKey,
        names: list[x509.GeneralName],
        validity: tuple[datetime.datetime, datetime.datetime],
        purposes: tuple[x509.ObjectIdentifier, ...],
        subject: str,
    ) -> bytes:
        """A certificate of ``key`` (PEM), which certifies nobody else, with the way to the authority before."""
        certificate = _sign(
            key,
            _name(subject),
            self.certificate,
            self.key,
            validity,
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage(purposes), False),
            (x509.SubjectAlternativeName(names), False),
        )
        return public_pem(certificate) + b"".join(self.earlier[:1])


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certifies(path_length: int) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    return (x509.BasicConstraints(ca=True, path_length=path_length), True), (_usage("key_cert_sign", "crl_sign"), True)


def _usage(*chosen: str) -> x509.KeyUsage:
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{name: name in chosen for name in every.split()})


def _sign(
    key: ec.EllipticCurvePublicKey,
    subject: x509.Name,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    validity: tuple[datetime.datetime, datetime.datetime],
    *extensions: tuple[x509.ExtensionType, bool],
) -> x509.Certificate:
    """A certificate with these extensions, each critical or not; without an issuer it is self-signed."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
    )
    for extension, critical in (
        *extensions,
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256())


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:
        return False
    return True


def key_hash(key: ec.EllipticCurvePublicKey) -> str:
    """sha256 (hex) of the key's SubjectPublicKeyInfo (DER)."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


# --- PEM --------------------------------------------------------------------------------------------------------------


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def public_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def blocks(pem: bytes) -> list[bytes]:
    """Keys and certificates in the order in which they stand."""
    return [match[0] for match in _BLOCK.finditer(pem)]


def split(pem: bytes) -> tuple[bytes, bytes]:
    """The one key, and the certificates. Raises CertificateError where there is not one key."""
    parts = blocks(pem)
    keys = [part for part in parts if b"PRIVATE KEY" in part]
    if len(keys) != 1:
        raise CertificateError(f"there are {len(keys)} keys, not one")
    return keys[0], b"".join(part for part in parts if b"PRIVATE KEY" not in part)


def load_chain(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Load them through pipes: a confined process can neither open nor make files.

    Raises:
        OSError, ValueError: they cannot be used.
    """
    ends: list[int] = []
    try:
        for data in (chain, key):
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            ends.append(reading)
            with os.fdopen(writing, "wb", 0) as pipe:
                if pipe.write(data) != len(data):
                    raise OSError(f"a pipe holds less than {len(data)} bytes")
        context.load_cert_chain(*(f"/proc/self/fd/{end}" for end in ends), password=_no_password)
    finally:
        for end in ends:
            os.close(end)


def _no_password() -> str:
    """OpenSSL would ask the terminal."""
    raise ValueError("the key has a passphrase")
