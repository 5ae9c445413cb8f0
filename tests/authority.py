"""A private authority as an organisation runs one.

Its certificates last 90 days, and key and chain are in files of their own.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    certificate: Path
    key: Path
    serial: int


class Authority:
    """Writes its certificate to ``folder/ca.pem``, and those that it issues beside it."""

    def __init__(self, folder: Path, name: str = "a private authority"):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / "ca.pem"
        builder = self._builder(self._name, self._key, 3650).add_extension(x509.BasicConstraints(True, None), True)
        builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), True)
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, stem: str, *names: str, days: int = 90, client: bool = False) -> Issued:
        """A server's certificate, or a client's; names may be addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        certificate = (
            self._builder(subject, key, days)
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(_usage("digital_signature"), True)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
            .add_extension(x509.ExtendedKeyUsage([usage]), False)
            .sign(self._key, hashes.SHA256())
        )
        issued = Issued(self._folder / f"{stem}.pem", self._folder / f"{stem}-key.pem", certificate.serial_number)
        issued.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        issued.key.touch(0o600)
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return issued

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )


def _usage(*chosen: str) -> x509.KeyUsage:
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{name: name in chosen for name in every.split()})


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
