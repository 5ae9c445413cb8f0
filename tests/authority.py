"""A private authority as an organisation runs one: certificates of 90 days, key and chain in files of their own."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from workers.trust import authority
from workers.trust.authority import private_pem, public_pem

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    certificate: Path
    key: Path
    serial: int


class Authority:
    """Writes its certificate to ``folder/ca.pem``, and those that it issues beside it."""

    def __init__(self, folder: Path, name: str = "a private authority"):
        self._folder, self._authority = folder, authority.Authority.make(name)
        self.file = folder / "ca.pem"
        self.file.write_bytes(public_pem(self._authority.certificate))

    def issue(self, stem: str, *names: str, days: int = 90, client: bool = False) -> Issued:
        """A server's certificate, or a client's; names may be addresses."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        pem = self._authority.issue(
            key.public_key(), [_general(name) for name in names], (now - DAY, now + days * DAY), (usage,), names[0]
        )
        serial = x509.load_pem_x509_certificate(pem).serial_number
        issued = Issued(self._folder / f"{stem}.pem", self._folder / f"{stem}-key.pem", serial)
        issued.certificate.write_bytes(pem)
        issued.key.touch(0o600)
        issued.key.write_bytes(private_pem(key))
        return issued


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
