"""A member's identity in handshakes with members of its cluster and strangers."""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.authority import Authority as PrivateAuthority
from workers.trust.authority import Authority, CertificateError, blocks
from workers.trust.member import MemberIdentity, certify, client_context, peer_of, server_context, stored_key

from .worlds import DAY, NOW, handshake, member, renew


@pytest.fixture(scope="module")
def cluster() -> Authority:
    return Authority.make()


def leaf(identity: MemberIdentity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(b"".join(blocks(identity.pem)[1:]))


def test_both_ends_see_role_name_and_key(cluster, tmp_path):
    node = member(cluster, tmp_path / "a.pem")
    gateway = member(cluster, tmp_path / "b.pem", "gateway", "rack 2/ä%")
    seen_by_client, seen_by_server = handshake(node.server_context(), gateway.client_context())
    assert seen_by_client == ("node", "a", node.key_hash)
    assert seen_by_server == ("gateway", "rack 2/ä%", gateway.key_hash)
    key = leaf(node).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert node.key_hash == hashlib.sha256(key).hexdigest()


def test_contexts_speak_tls_1_3_and_demand_a_certificate_of_the_cluster(cluster, tmp_path):
    node = member(cluster, tmp_path / "a.pem")
    plain = ssl.create_default_context()
    plain.check_hostname, plain.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(node.server_context(), plain)
    older = node.client_context()
    older.minimum_version, older.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        handshake(node.server_context(), older)
    stranger = member(Authority.make(), tmp_path / "stranger.pem")
    for server, client in ((node, stranger), (stranger, node)):
        with pytest.raises(ssl.SSLError, match=r"UNKNOWN_CA|CERTIFICATE_VERIFY_FAILED"):
            handshake(server.server_context(), client.client_context())


def test_a_member_without_a_certificate_is_notified(tmp_path):
    made = MemberIdentity(tmp_path / "a.pem", "node", "a")
    assert stored_key(tmp_path / "a.pem") == made.key_hash and stored_key(tmp_path / "b.pem") == ""
    with pytest.raises(CertificateError, match="has no certificate of its cluster yet"):
        client_context((tmp_path / "a.pem").read_bytes())


def test_dates_are_not_checked_by_peers(cluster, tmp_path):
    old = member(cluster, tmp_path / "a.pem", now=datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    future = member(cluster, tmp_path / "b.pem", "gateway", now=NOW + 20_000 * DAY)
    assert handshake(old.server_context(), future.client_context())
    assert handshake(future.server_context(), old.client_context())


def test_certificates_that_are_no_members_get_a_clear_error(cluster, tmp_path):
    private = PrivateAuthority(tmp_path)
    issued = private.issue("web", "web.example")
    pem = issued.key.read_bytes() + issued.certificate.read_bytes() + private.file.read_bytes()
    node = member(cluster, tmp_path / "a.pem")
    with pytest.raises(ssl.SSLError, match=r"UNKNOWN_CA|CERTIFICATE_VERIFY_FAILED"):
        handshake(server_context(pem), node.client_context())
    # Its purpose is to serve: as a client's it is refused.
    with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_VERIFY_FAILED"):
        handshake(server_context(pem), client_context(pem))
    server = server_context(pem)
    server.verify_mode = ssl.CERT_NONE
    ours, theirs = _connected(server, client_context(pem))
    with pytest.raises(CertificateError, match="nereus:ROLE/NAME"):
        peer_of(ours)
    with pytest.raises(CertificateError, match="shown no certificate"):
        peer_of(theirs)


def _connected(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (ours, theirs, ours, theirs):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ours, theirs


def test_the_file_is_private_and_keeps_the_key(cluster, tmp_path):
    file = tmp_path / "members" / "node-a.pem"
    identity = MemberIdentity(file, "node", "a")
    assert not identity.issued
    with pytest.raises(CertificateError, match="node 'a' has no certificate"):
        identity.server_context()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    renew(cluster, identity)
    again = MemberIdentity(file, "node", "a")
    assert again.key_hash == identity.key_hash and again.pem == identity.pem and again.issued
    # A member that got another name keeps its key alone.
    renamed = MemberIdentity(file, "node", "b")
    assert renamed.key_hash == identity.key_hash and not renamed.issued


@pytest.mark.parametrize("damage", [b"", b"half a key", b"\xff" * 1000, "certificates", "twice", "other key"])
def test_a_damaged_file_is_made_anew(cluster, tmp_path, damage):
    file = tmp_path / "a.pem"
    identity = member(cluster, file)
    key, *certificates = blocks(file.read_bytes())
    other = blocks(member(cluster, tmp_path / "other.pem").pem)[0]
    made = {"certificates": b"".join(certificates), "twice": key + key, "other key": other + b"".join(certificates)}
    file.write_bytes(made.get(damage, damage))
    again = MemberIdentity(file, "node", "a")
    assert again.key_hash != identity.key_hash and not again.issued
    renew(cluster, again)
    assert MemberIdentity(file, "node", "a").pem == again.pem


def test_a_folder_that_cannot_be_written_costs_the_key_at_the_next_start_alone(cluster, tmp_path):
    (tmp_path / "members").write_text("no folder")
    identity = member(cluster, tmp_path / "members" / "a.pem")
    assert handshake(identity.server_context(), identity.client_context())


def test_another_certificate_calls_listeners_and_serves_beside_connections_of_the_one_before(cluster, tmp_path):
    identity = member(cluster, tmp_path / "a.pem")
    calls = []
    identity.on_replaced(lambda: calls.append(leaf(identity).serial_number))
    before = identity.server_context()
    issued = certify(cluster, identity.request(), "node", "a", NOW)
    identity.store(issued.certificate, cluster.trusted.decode())
    identity.store(issued.certificate, cluster.trusted.decode())
    assert calls == [leaf(identity).serial_number]
    assert handshake(before, identity.client_context())[0].key_hash == identity.key_hash


def test_what_is_not_this_members_is_not_stored(cluster, tmp_path):
    identity = member(cluster, tmp_path / "a.pem")
    before = identity.pem
    others = member(cluster, tmp_path / "b.pem")
    for request, role, name, trusted, reason in (
        (others.request(), "node", "a", cluster, "for another key"),
        (MemberIdentity(tmp_path / "c.pem", "node", "c").request(), "node", "c", cluster, "is for node 'c'"),
        (identity.request(), "node", "a", Authority.make(), "none of the authorities"),
    ):
        issued = certify(cluster, request, role, name, NOW)
        with pytest.raises(CertificateError, match=reason):
            identity.store(issued.certificate, trusted.trusted.decode())
    for garbage in ("", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(CertificateError):
            identity.store(garbage, cluster.trusted.decode())
        with pytest.raises(CertificateError):
            identity.store(issued.certificate, garbage)
    assert identity.pem == before == MemberIdentity(tmp_path / "a.pem", "node", "a").pem


CONFINED = """
import sys
from pathlib import Path
from workers.confinement import confine_executor
from workers.trust.member import certify, client_context, server_context
isolation = confine_executor([], private=Path(sys.argv[1]))
pem = sys.stdin.buffer.read()
server_context(pem), client_context(pem)
print(isolation.seccomp)
"""


def test_a_confined_process_makes_contexts_from_bytes(cluster, tmp_path):
    pem = member(cluster, tmp_path / "a.pem").pem
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, str(tmp_path)], input=pem, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        server_context(pem)
    assert len(os.listdir("/proc/self/fd")) == open_files
