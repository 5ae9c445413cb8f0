"""The appliance's own certificate: names, renewal, wrong clocks and damaged files."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading

import pytest
from cryptography import x509

from tests.authority import Authority
from workers import disk
from workers.settings import Settings
from workers.trust import control_plane
from workers.trust import server as own_server
from workers.trust.authority import CertificateError
from workers.trust.server import OwnCertificate, ServerIdentity, box_names, names_of

UTC = datetime.UTC
NOW = datetime.datetime(2026, 11, 22, tzinfo=UTC)
YEAR = datetime.timedelta(days=365.25)


def certificate(own: OwnCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(own.server_file.read_bytes())


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> int:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).unwrap()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            return x509.load_der_x509_certificate(connection.getpeercert(True)).serial_number
    finally:
        ours.close()
        thread.join()


def test_it_names_the_box_and_is_issued_once(tmp_path):
    own = OwnCertificate(tmp_path / "tls")
    wanted = [*box_names(), "box.example.com", "BOX.example.com.", "192.0.2.7", "0.0.0.0", "no such name!", ""]
    assert own.ensure(wanted, NOW)
    first = own.server_file.read_bytes()
    assert {"localhost", "127.0.0.1", "::1", "box.example.com", "192.0.2.7"} <= set(names_of(certificate(own)))
    assert "0.0.0.0" not in names_of(certificate(own))
    assert not own.ensure(wanted, NOW) and own.server_file.read_bytes() == first
    assert own.authority_key_file.stat().st_mode & 0o077 == own.server_file.stat().st_mode & 0o077 == 0


def test_a_new_name_and_a_near_end_renew_it_under_the_same_authority(tmp_path):
    own = OwnCertificate(tmp_path)
    own.ensure(["a.example"], NOW)
    authority, first = own.authority_file.read_bytes(), certificate(own)
    assert own.ensure(["b.example"], NOW)
    assert names_of(certificate(own)) == ["b.example", "a.example"]
    assert not own.ensure(["b.example"], NOW + 4 * YEAR)
    assert own.ensure(["b.example"], NOW + 6 * YEAR)
    assert certificate(own).not_valid_after_utc > first.not_valid_after_utc
    for number in range(100):
        own.ensure([f"{number}.example"], NOW + 6 * YEAR)
    assert len(names_of(certificate(own))) == 64
    assert own.authority_file.read_bytes() == authority


@pytest.mark.parametrize("boot", [datetime.datetime(1970, 1, 1, tzinfo=UTC), datetime.datetime(2040, 6, 1, tzinfo=UTC)])
def test_a_first_start_with_a_wrong_clock_serves_clients_whose_clock_is_right(tmp_path, boot):
    own = OwnCertificate(tmp_path)
    own.ensure(["127.0.0.1"], boot)
    made = certificate(own)
    for clock in (datetime.datetime(1970, 1, 1, tzinfo=UTC), NOW, NOW + 4 * YEAR, boot):
        assert made.not_valid_before_utc <= clock <= made.not_valid_after_utc
        authority = x509.load_pem_x509_certificate(own.authority_file.read_bytes())
        assert authority.not_valid_before_utc <= clock <= authority.not_valid_after_utc
    # And once the clock is right it is not issued anew for that.
    assert not own.ensure(["127.0.0.1"], NOW)


def test_damaged_files_are_made_again_but_an_authority_is_never_replaced(tmp_path):
    own = OwnCertificate(tmp_path)
    own.ensure(["127.0.0.1"], NOW)
    own.server_file.write_bytes(b"half a")
    assert own.ensure(["127.0.0.1"], NOW)
    authority = own.authority_file.read_bytes()
    own.server_file.unlink()
    own.authority_key_file.unlink()
    with pytest.raises(CertificateError, match=r"authority\.pem.*its key is missing; restore both"):
        own.ensure(["127.0.0.1"], NOW)
    assert own.authority_file.read_bytes() == authority
    # A first start that was cut off between both files is completed.
    own.authority_file.unlink()
    own.authority_key_file.write_bytes(b"")
    assert own.ensure(["127.0.0.1"], NOW)


def test_processes_that_start_together_make_one_authority(tmp_path):
    threads = [threading.Thread(target=OwnCertificate(tmp_path).ensure, args=(["127.0.0.1"], NOW)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = OwnCertificate(tmp_path)
    assert not own.ensure(["127.0.0.1"], NOW)
    certificate(own).verify_directly_issued_by(x509.load_pem_x509_certificate(own.authority_file.read_bytes()))


def settings(home, **given: str) -> Settings:
    return Settings.from_environ(
        {"NEREUS_HOME": str(home)} | {f"NEREUS_{name}": value for name, value in given.items()}
    )


def test_members_here_trust_their_own_console_and_nothing_else(tmp_path):
    chosen = settings(tmp_path, TLS="on")
    server = ServerIdentity(chosen).context
    client = control_plane.client_context(chosen, chosen.control_url)
    assert handshake(server, client)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ServerIdentity(settings(tmp_path / "other", TLS="on")).context, client)


def test_a_given_certificate_is_pinned_by_members_here_even_after_its_end(tmp_path):
    authority = Authority(tmp_path)
    given = authority.issue("given", "box.example.com", days=0)
    chosen = settings(tmp_path, TLS_CERT=str(given.certificate), TLS_KEY=str(given.key))
    assert chosen.console.tls and chosen.control_url.startswith("https://127.0.0.1:")
    client = control_plane.client_context(chosen, chosen.control_url)
    assert handshake(ServerIdentity(chosen).context, client) == given.serial
    other = authority.issue("other", "box.example.com")
    impostor = ServerIdentity(settings(tmp_path, TLS_CERT=str(other.certificate), TLS_KEY=str(other.key)))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(impostor.context, client)


def test_another_control_plane_is_trusted_by_the_ca_file(tmp_path):
    authority = Authority(tmp_path)
    given = authority.issue("plane", "control.example.com")
    server = ServerIdentity(settings(tmp_path, TLS_CERT=str(given.certificate), TLS_KEY=str(given.key))).context
    url = "https://control.example.com:8080"
    trusting = settings(tmp_path, CONTROL_URL=url, CA_FILE=str(authority.file))
    assert handshake(server, control_plane.client_context(trusting, url), "control.example.com") == given.serial
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, control_plane.client_context(trusting, url), "elsewhere.example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, control_plane.client_context(settings(tmp_path, CONTROL_URL=url), url), "control.example.com")


def test_an_own_certificate_that_cannot_be_renewed_serves_on(tmp_path):
    first = ServerIdentity(settings(tmp_path, TLS="on"))
    (tmp_path / "tls" / "authority-key.pem").unlink()
    renamed = settings(tmp_path, TLS="on", ALLOWED_HOSTS="new.example.com")
    client = control_plane.client_context(renamed, renamed.control_url)
    assert handshake(ServerIdentity(renamed).context, client) == handshake(first.context, client)


def test_what_is_no_pair_names_the_settings(tmp_path):
    authority = Authority(tmp_path)
    one, two = authority.issue("one", "a"), authority.issue("two", "a")
    with pytest.raises(CertificateError, match=r"NEREUS_TLS_CERT=.*one\.pem, NEREUS_TLS_KEY=.*two-key\.pem: must be"):
        own_server.prepare(settings(tmp_path, TLS_CERT=str(one.certificate), TLS_KEY=str(two.key)))


def serve_and_trust(home) -> tuple[ServerIdentity, ssl.SSLContext]:
    chosen = settings(home, TLS="on")
    return ServerIdentity(chosen), ssl.create_default_context(cafile=own_server.own(chosen).authority_file)


def test_a_rotated_certificate_has_another_key_and_the_same_authority(tmp_path):
    server, client = serve_and_trust(tmp_path)
    first = handshake(server.context, client)
    key = own_server.own(settings(tmp_path)).server_file.read_bytes()
    own_server.rotate_own(settings(tmp_path, TLS="on"), authority=False)
    assert handshake(server.context, client) == first, "until the files are looked at"
    assert server.refresh() and handshake(server.context, client) != first
    assert own_server.own(settings(tmp_path)).server_file.read_bytes()[:200] != key[:200]
    assert not server.refresh()


def test_clients_of_the_authority_before_and_of_the_new_one_are_served(tmp_path):
    server, before = serve_and_trust(tmp_path)
    own_server.rotate_own(settings(tmp_path, TLS="on"), authority=True)
    assert server.refresh()
    again, after = serve_and_trust(tmp_path)
    assert handshake(server.context, before) == handshake(server.context, after) == handshake(again.context, before)
    assert before.get_ca_certs() != after.get_ca_certs()
    # An authority that was replaced twice is not trusted forever.
    own_server.rotate_own(settings(tmp_path, TLS="on"), authority=True)
    server.refresh()
    assert handshake(server.context, after)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server.context, before)


class PowerCut(Exception):
    pass


@pytest.mark.parametrize("writes", range(4))
def test_a_rotation_that_is_cut_off_is_completed_or_never_was(tmp_path, monkeypatch, writes):
    server, before = serve_and_trust(tmp_path)
    write, left = disk.write_private, [writes]

    def until_the_cut(path, data) -> None:
        if not left[0]:
            raise PowerCut
        left[0] -= 1
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_private", until_the_cut)
        try:
            own_server.rotate_own(settings(tmp_path, TLS="on"), authority=True)
        except PowerCut:
            assert writes < 3
    server.refresh()
    after, new = serve_and_trust(tmp_path)
    for context in (server.context, after.context):
        assert handshake(context, before) and handshake(context, new)
    assert (before.get_ca_certs() == new.get_ca_certs()) is (writes == 0)


@pytest.mark.parametrize("cut_off", [False, True])
def test_an_authority_that_the_release_before_rotated_keeps_its_clients(tmp_path, cut_off):
    """Also where its rotation was cut off."""
    _, before = serve_and_trust(tmp_path)
    own = own_server.own(settings(tmp_path))
    if cut_off:
        # The next one is whole, and its key alone in place.
        successor = own_server.Authority.make(before=own_server.Authority.load(own.authority_key_file.read_bytes())).pem
        key = own_server.blocks(successor)
        (own.authority_file.parent / "authority-next.pem").write_bytes(b"".join(key[:3]))
    else:
        own_server.rotate_own(settings(tmp_path, TLS="on"), authority=True)
        key = own_server.blocks(own.authority_key_file.read_bytes())
        (own.authority_file.parent / "authority-cross.pem").write_bytes(key[2])
    own.authority_key_file.write_bytes(key[0])
    shown = own.shown_authority()
    again, after = serve_and_trust(tmp_path)
    assert len(own_server.blocks(own.shown_authority())) == 2 > len(own_server.blocks(shown))
    assert handshake(again.context, after)
    own.ensure([*box_names(), "another.example.com"])
    again.refresh()
    assert handshake(again.context, before) and handshake(again.context, after)
    assert not (own.authority_file.parent / "authority-next.pem").exists()


def test_a_server_that_runs_for_years_renews_its_certificate(tmp_path, monkeypatch):
    server, client = serve_and_trust(tmp_path)
    began, serials = datetime.datetime.now(UTC), []
    for year in range(25):
        monkeypatch.setattr(own_server, "_now", lambda year=year: began + year * YEAR)
        server.refresh()
        end = certificate(own_server.own(settings(tmp_path))).not_valid_after_utc
        assert end - own_server._now() >= own_server.RENEW_BEFORE
        serials.append(handshake(server.context, client))
    assert len(set(serials)) == 5
