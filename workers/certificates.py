"""The appliance's own certificate: a small authority and its server certificate.

One file, ``authority.pem``, makes clients trust the box for good; the server certificate is issued anew when names or
addresses of the box change, and long before its end. Validity allows for clocks that are years off
(``docs/decisions/18-trust-between-boxes.md``).
"""

from __future__ import annotations

import datetime
import fcntl
import ipaddress
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from . import disk

_UTC = datetime.UTC
#: the earliest moment that a clock shows, so that a box or client without one accepts the certificate
START = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
#: RFC 5280's "no well-defined end": an authority that ends would lock out every client on one day
AUTHORITY_END = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=_UTC)
#: no release is older: a clock before it is wrong
RELEASED = datetime.datetime(2026, 1, 1, tzinfo=_UTC)
#: a server certificate's time from its issue, and what is left of it when the next one is issued
SERVER_VALIDITY, RENEW_BEFORE = datetime.timedelta(days=3653), datetime.timedelta(days=1826)
#: names and addresses of one certificate; earlier ones of the box stay in it while there is room
MAX_NAMES = 64

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: blocks of a PEM file, as this module writes it
PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.+?-----END [A-Z ]+-----\n", re.DOTALL)
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the standard library does not name
NO_CHECK_TIME = 0x200000
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class CertificateError(Exception):
    """A certificate or key cannot be used; the text names the file and what to do."""


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


class OwnCertificate:
    """The files of an own authority under ``folder``, for several processes at once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.authority_file = folder / "authority.pem"
        self.authority_key_file = folder / "authority-key.pem"
        #: key and certificate chain in one file, so that all are replaced at once
        self.server_file = folder / "server.pem"
        #: the authority as the one before it certifies it, for clients that know no other
        self._cross_file = folder / "authority-cross.pem"
        #: the next authority's key, certificate and cross certificate, from when it is whole until it is in use
        self._next_file = folder / "authority-next.pem"

    def ensure(self, names: Iterable[str], now: datetime.datetime | None = None) -> bool:
        """Make the missing files, and renew the server certificate where it has to be.

        It is renewed where it ends soon or lacks one of ``names``.

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
            self._use_next()
            if self._good(wanted, now):
                return False
            self._issue_server(wanted, now)
        return True

    def shown_authority(self) -> bytes:
        """The authority (PEM), and itself by the one before it; empty before it is made."""
        authority = disk.read(self.authority_file)
        return b"" if authority is None else authority + (disk.read(self._cross_file) or b"")

    def rotate(self, names: Iterable[str], authority: bool = False) -> None:
        """Replace the server certificate with its key.

        Servers use the new one within 10 s.

        Args:
            authority: replace the authority, too. Servers then send its certificate by the earlier one along, so that
                clients which trust either are served.

        Raises:
            CertificateError, OSError: as :meth:`ensure`; what was there stays.
        """
        with self._locked():
            self._use_next()
            if authority:
                self._make_next()
                self._use_next()
            self._issue_server(_wanted(names), _now())

    def _issue_server(self, wanted: list[str], now: datetime.datetime) -> None:
        authority = self._authority()
        earlier = [name for name in self._names() if name not in wanted]
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = issue(
            authority,
            key.public_key(),
            [_general_name(name) for name in (wanted + earlier)[:MAX_NAMES]],
            (START, max(now, RELEASED) + SERVER_VALIDITY),
            (ExtendedKeyUsageOID.SERVER_AUTH,),
            os.uname().nodename[:64] or "nereus",
        )
        chain = public_pem(certificate) + (disk.read(self._cross_file) or b"")
        disk.write_private(self.server_file, private_pem(key) + chain)

    def _make_next(self) -> None:
        earlier, made = self._authority(), make_authority()
        cross = b""
        if earlier.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length != 0:
            # Authorities of earlier releases may not certify others: their clients need the new file at once.
            cross = public_pem(certified_by(earlier, made))
        disk.write_private(self._next_file, private_pem(made.key) + public_pem(made.certificate) + cross)

    def _use_next(self) -> None:
        """Put the next authority in place; completes what was cut off."""
        data = disk.read(self._next_file)
        if data is None:
            return
        key, certificate, *cross = PEM.findall(data)
        disk.write_private(self._cross_file, b"".join(cross))
        disk.write_private(self.authority_key_file, key)
        disk.write_private(self.authority_file, certificate)
        self._next_file.unlink()
        disk.sync_folder(self._folder)

    def _good(self, wanted: list[str], now: datetime.datetime) -> bool:
        certificate = self._server()
        if self._next_file.exists():
            return False
        if certificate is None or certificate.not_valid_after_utc - max(now, RELEASED) < RENEW_BEFORE:
            return False
        authority = disk.read(self.authority_file)
        return (
            authority is not None
            and issued_by(certificate, authority)
            and set(wanted[:MAX_NAMES]) <= set(names_of(certificate))
        )

    def _names(self) -> list[str]:
        certificate = self._server()
        return [] if certificate is None else names_of(certificate)

    def _server(self) -> x509.Certificate | None:
        data = disk.read(self.server_file)
        try:
            if data is None:
                return None
            serialization.load_pem_private_key(data, None)
            return x509.load_pem_x509_certificate(data)
        except (ValueError, TypeError):
            # It is issued anew: nobody pins it.
            return None

    def _authority(self) -> Authority:
        key_data, data = disk.read(self.authority_key_file), disk.read(self.authority_file)
        if key_data is None and data is None:
            return self._new_authority()
        if data is None:
            # A first start that was cut off between the two files: no client has the authority yet.
            return self._new_authority()
        try:
            if key_data is None:
                raise ValueError("its key is missing")
            key = serialization.load_pem_private_key(key_data, None)
            certificate = x509.load_pem_x509_certificate(data)
            if key.public_key() != certificate.public_key():
                raise ValueError("certificate and key do not belong together")
        except (ValueError, TypeError) as error:
            raise CertificateError(
                f"{self.authority_file} with {self.authority_key_file.name}: {error}; restore both from a backup, or "
                "remove both, and give clients the new authority"
            ) from None
        return Authority(key, certificate)

    def _new_authority(self) -> Authority:
        made = make_authority()
        disk.write_private(self.authority_key_file, private_pem(made.key))
        disk.write_private(self.authority_file, public_pem(made.certificate))
        return made

    @contextmanager
    def _locked(self):
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def canonical(name: str) -> str:
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
    for found in psutil.net_if_addrs().values():
        for one in found:
            try:
                address = ipaddress.ip_address(one.address)
            except ValueError:
                continue
            if not address.is_link_local:
                names.append(str(address))
    return names


def top_of_chain(chain: bytes, more: bytes = b"") -> bytes:
    """Return the self-signed certificate above a server's chain (PEM); empty: none.

    Args:
        chain: the server's certificate, then those above it.
        more: authorities that may be above the chain.

    Raises:
        CertificateError: they are not certificates.
    """
    try:
        top, *others = x509.load_pem_x509_certificates(chain)
        others += x509.load_pem_x509_certificates(more) if more else []
    except ValueError as error:
        raise CertificateError(f"the certificate's chain cannot be read: {error}") from None
    while not issued_by(top, public_pem(top)):
        issuer = next((one for one in others if issued_by(top, public_pem(one))), None)
        if issuer is None:
            return b""
        # Each is used once, so that authorities that certify each other end the search.
        others.remove(issuer)
        top = issuer
    return public_pem(top)


def names_of(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    dns = extension.get_values_for_type(x509.DNSName)
    return [*dns, *map(str, extension.get_values_for_type(x509.IPAddress))]


def _now() -> datetime.datetime:
    return datetime.datetime.now(_UTC)


def _wanted(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in map(canonical, names) if name))


def make_authority(purpose: str = "Nereus") -> Authority:
    """A new authority, named after its purpose and the box."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"{purpose} {os.uname().nodename[:32]} {secrets.token_hex(4)}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return Authority(key, _authority_certificate(key, subject, None))


def certified_by(earlier: Authority, made: Authority) -> x509.Certificate:
    """The cross certificate of ``made`` by ``earlier``, for those who trust no other."""
    return _authority_certificate(made.key, made.certificate.subject, earlier)


def _authority_certificate(
    key: ec.EllipticCurvePrivateKey, name: x509.Name, issuer: Authority | None
) -> x509.Certificate:
    """Return an authority's certificate, signed by itself or by ``issuer``.

    A self-signed one may certify its successor and servers, one by an issuer servers alone.
    """
    signing = issuer.key if issuer is not None else key
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer is not None else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(AUTHORITY_END)
        .add_extension(x509.BasicConstraints(ca=True, path_length=1 if issuer is None else 0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )


def issue(
    authority: Authority,
    key: ec.EllipticCurvePublicKey,
    names: list[x509.GeneralName],
    validity: tuple[datetime.datetime, datetime.datetime],
    purposes: tuple[x509.ObjectIdentifier, ...],
    subject: str,
) -> x509.Certificate:
    """A certificate of ``key`` for ``names``; it certifies nobody else."""
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def issued_by(certificate: x509.Certificate, authority: bytes) -> bool:
    """Whether the authority (PEM) signed it; what is wrong with either is no proof."""
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except Exception:
        return False
    return True


def _usage(*chosen: str) -> x509.KeyUsage:
    every = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{name: name in chosen for name in every.split()})


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as PEM (PKCS #8), not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def no_password() -> str:
    """For ``load_cert_chain``, which would ask the terminal."""
    raise ValueError("the key has a passphrase")
