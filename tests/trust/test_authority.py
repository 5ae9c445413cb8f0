"""The cluster's authority: what it issues and refuses, and the overlap of two."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from workers.protocol.control import MOST_REQUEST
from workers.trust.authority import Authority, CertificateError, blocks
from workers.trust.member import MemberIdentity, certify, member_uri

from .worlds import DAY, NOW, handshake, member, renew

CLUSTER = Authority.make()


def request(key, *names: x509.GeneralName, algorithm=None) -> str:
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM).decode()


def sha256(key, *names: x509.GeneralName) -> str:
    return request(key, *names, algorithm=hashes.SHA256())


def p256(*names: x509.GeneralName) -> str:
    return sha256(ec.generate_private_key(ec.SECP256R1()), *names)


def test_it_is_stored_as_one_text_and_issues_for_thirty_days():
    stored = Authority.load(CLUSTER.pem)
    issued = certify(stored, p256(member_uri("node", "a")), "node", "a", NOW)
    certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
    assert certificate.not_valid_after_utc == NOW + 30 * DAY == issued.until
    assert certificate.not_valid_before_utc == NOW - DAY
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert stored.key_hash == CLUSTER.key_hash != issued.key_hash


@pytest.mark.parametrize("pem", [b"", b"garbage", CLUSTER.pem[:300], CLUSTER.trusted * 2])
def test_a_damaged_authority_is_reported(pem):
    with pytest.raises(CertificateError, match="the authority cannot be used"):
        Authority.load(pem)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read"),
        ("x" * (MOST_REQUEST + 1), "at most 8000 characters"),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "cannot be read"),
        (p256(), "cannot be read"),
        (p256(x509.DNSName("a")), "nereus:ROLE/NAME"),
        (p256(x509.UniformResourceIdentifier("nereus:admin/a")), "nereus:ROLE/NAME"),
        (p256(x509.UniformResourceIdentifier("nereus:node/%ff")), "cannot be read"),
        (p256(member_uri("node", "a"), member_uri("gateway", "b")), "nereus:ROLE/NAME"),
        (p256(member_uri("gateway", "a")), "names gateway 'a', and the member is node 'a'"),
        (p256(member_uri("node", "b")), "names node 'b', and the member is node 'a'"),
        (request(ed25519.Ed25519PrivateKey.generate(), member_uri("node", "a")), "EC key of P-256"),
        (sha256(ec.generate_private_key(ec.SECP384R1()), member_uri("node", "a")), "EC key of P-256"),
        (sha256(rsa.generate_private_key(65537, 2048), member_uri("node", "a")), "EC key of P-256"),
    ],
)
def test_requests_that_are_not_this_members_are_refused(text, reason):
    with pytest.raises(CertificateError, match=reason):
        certify(CLUSTER, text, "node", "a", NOW)


def test_a_request_signed_by_another_key_is_refused():
    parsed = x509.load_pem_x509_csr(p256(member_uri("node", "a")).encode())
    der = bytearray(parsed.public_bytes(serialization.Encoding.DER))
    ours = parsed.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    theirs = other.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    forged = x509.load_der_x509_csr(bytes(der).replace(ours, theirs))
    with pytest.raises(CertificateError, match="not signed by its own key"):
        certify(CLUSTER, forged.public_bytes(serialization.Encoding.PEM).decode(), "node", "a", NOW)


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=200))
def test_any_name_travels(name):
    issued = certify(CLUSTER, p256(member_uri("gateway", name)), "gateway", name, NOW)
    assert issued.certificate
    with pytest.raises(CertificateError, match="names gateway"):
        certify(CLUSTER, p256(member_uri("gateway", name)), "gateway", name + "x", NOW)


@pytest.mark.parametrize("year", [1, 1969, 1970, 2040, 9999])
def test_any_clock_issues(year):
    request_of_a = p256(member_uri("node", "a"))
    now = datetime.datetime(year, 12, 31, tzinfo=datetime.UTC)
    assert certify(CLUSTER, request_of_a, "node", "a", now).until
    if 1950 < year < 9999:
        first = now.replace(month=1, day=1)
        assert certify(CLUSTER, request_of_a, "node", "a", first).until == first + 30 * DAY


def test_members_of_two_successive_authorities_accept_each_other_all_along(tmp_path):
    first = Authority.make()
    node, gateway = member(first, tmp_path / "a.pem"), member(first, tmp_path / "b.pem", "gateway", "b")
    second = Authority.load(Authority.make(before=first).pem)
    for renewing, role, name in ((gateway, "gateway", "b"), (node, "node", "a")):
        renew(second, renewing, role, name)
        assert handshake(node.server_context(), gateway.client_context())
        assert handshake(gateway.server_context(), node.client_context())
    # Members that trust the second authority alone accept both, those of another cluster neither.
    assert MemberIdentity(tmp_path / "a.pem", "node", "a").issued
    fresh = member(Authority.load(b"".join(blocks(second.pem)[:2])), tmp_path / "c.pem", "node", "c")
    assert handshake(fresh.server_context(), node.client_context())
