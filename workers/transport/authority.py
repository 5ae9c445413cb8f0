"""The cluster's authority, which issues members' certificates.

Pure, without files and rows. The control plane owns it.

Successive authorities overlap: certificates carry the new authority as the one before certifies it, and members trust
both, so that old and new certificates are accepted everywhere while members renew.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from workers.certificates import (
    PEM,
    Authority,
    CertificateError,
    certified_by,
    issue,
    make_authority,
    private_pem,
    public_pem,
)
from workers.protocol.control import MOST_REQUEST

from .identity import UNREADABLE, VALIDITY, key_hash, member_of, member_uri

#: a certificate begins earlier than its issue, for members whose clocks are behind
SKEW = datetime.timedelta(days=1)
#: earliest and latest issue that certificates can express, with their validity
_EARLIEST = datetime.datetime(1950, 1, 3, tzinfo=datetime.UTC)
_LATEST = datetime.datetime(9999, 11, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class IssuedMember:
    """A certificate that was issued to a member."""

    certificate: str  # PEM, with the way to the earlier authority
    key_hash: str  # of its key
    until: datetime.datetime  # its end


class ClusterAuthority:
    """An authority as it is stored.

    It has a key, a certificate, the cross certificate and the certificate of the authority before.

    Args:
        pem: from :attr:`pem`.

    Raises:
        CertificateError: it cannot be used.
    """

    def __init__(self, pem: bytes):
        try:
            key_pem, certificate_pem, *earlier = PEM.findall(pem)
            key = serialization.load_pem_private_key(key_pem, None)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
            if key.public_key() != certificate.public_key():
                raise ValueError("certificate and key do not belong together")
        except UNREADABLE as error:
            raise CertificateError(f"the cluster's authority cannot be used: {error}") from None
        self._authority = Authority(key, certificate)
        self._cross, self._earlier = (earlier[0], earlier[1]) if len(earlier) == 2 else (b"", b"")
        self.pem = pem

    @classmethod
    def make(cls, earlier: ClusterAuthority | None = None) -> ClusterAuthority:
        """A new authority, certified by the one before it."""
        made = make_authority("Nereus members")
        pem = private_pem(made.key) + public_pem(made.certificate)
        if earlier is not None:
            pem += public_pem(certified_by(earlier._authority, made)) + public_pem(earlier._authority.certificate)
        return cls(pem)

    @property
    def key_hash(self) -> str:
        """sha256 (hex) of its public key, which tells it from earlier ones."""
        return key_hash(self._authority.key.public_key())

    @property
    def authorities(self) -> str:
        """PEM of what members trust: this authority and the one before it."""
        return (public_pem(self._authority.certificate) + self._earlier).decode()

    def issue(self, request: str, role: str, name: str, now: datetime.datetime) -> IssuedMember:
        """A member's certificate for 30 days; CertificateError says what is wrong."""
        key = requested_key(request, role, name)
        now = min(max(now, _EARLIEST), _LATEST)
        certificate = issue(
            self._authority,
            key,
            [member_uri(role, name)],
            (now - SKEW, now + VALIDITY),
            (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
            "nereus member",
        )
        pem = (public_pem(certificate) + self._cross).decode()
        return IssuedMember(pem, key_hash(key), certificate.not_valid_after_utc)


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
        named = member_of(parsed.extensions)
    except CertificateError as error:
        raise CertificateError(f"certificate request refused: {error}") from None
    except UNREADABLE as error:
        raise CertificateError(f"certificate request refused: it cannot be read: {error}") from None
    if named != (role, name):
        raise CertificateError(
            f"certificate request refused: it names {named[0]} {named[1]!r}, and the member is {role} {name!r}"
        )
    return key
