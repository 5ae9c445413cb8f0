"""Certificate requests of members.

A key of P-256 that signed for this very member is accepted. All else is a refusal in words.
"""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from workers.trust.authority import CertificateError
from workers.trust.member import member_uri, requested_key

ARMOUR = "-----BEGIN CERTIFICATE REQUEST-----\n{}-----END CERTIFICATE REQUEST-----\n"


def _request(key, *names: x509.GeneralName) -> x509.CertificateSigningRequest:
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())


def seeds() -> list[bytes]:
    """The first byte: text as it is, or DER that is put into armour."""
    p256, ours = ec.generate_private_key(ec.SECP256R1()), member_uri("node", "a")
    made = [
        _request(p256, ours),
        _request(p256),
        _request(p256, ours, member_uri("gateway", "b")),
        _request(p256, x509.DNSName("a")),
        _request(ec.generate_private_key(ec.SECP384R1()), ours),
        _request(ed25519.Ed25519PrivateKey.generate(), ours),
    ]
    der = [b"\1" + request.public_bytes(serialization.Encoding.DER) for request in made]
    return [*der, b"\0" + made[0].public_bytes(serialization.Encoding.PEM)]


def check(data: bytes) -> None:
    if not data:
        return
    if data[0] % 2:
        text = ARMOUR.format(base64.encodebytes(data[1:]).decode())
    else:
        text = data[1:].decode(errors="surrogateescape" if data[0] % 4 else "replace")
    try:
        key = requested_key(text, "node", "a")
    except CertificateError as error:
        assert "certificate request" in str(error)
    else:
        assert isinstance(key.curve, ec.SECP256R1)
