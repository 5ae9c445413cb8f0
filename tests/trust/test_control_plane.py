"""A member trusts the control plane that its fingerprint pins, and no other."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
from cryptography import x509

from tests.authority import Authority
from tests.running import free_ports
from tools.waiting import eventually_async
from workers.link import MemberLink, Membership
from workers.protocol import control
from workers.settings import Settings
from workers.trust import control_plane
from workers.trust.control_plane import TrustError, authority_file, fingerprint, obtain, refresh
from workers.trust.server import OwnCertificate, top_of_chain

TOKEN = "the-join-token"


class Peer:
    """A TLS server that keeps what reaches it, and shows ``shown`` as its authority."""

    def __init__(self, identity: OwnCertificate, shown: bytes):
        self.shown, self.received = shown, b""
        self.status = b"200 OK"
        self.port = free_ports(1)[0]
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(identity.server_file)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port, ssl=self._context)
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            self.received += await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\n\r\n%s" % (self.status, self.shown))
            await writer.drain()
            writer.close()


def made(folder) -> OwnCertificate:
    certificate = OwnCertificate(folder)
    certificate.ensure(["127.0.0.1"])
    return certificate


def pin(certificate: OwnCertificate) -> str:
    return "sha256:" + fingerprint(x509.load_pem_x509_certificate(certificate.authority_file.read_bytes()))


def member(home, url: str, pinned: str) -> Settings:
    return Settings.from_environ(
        {"NEREUS_HOME": str(home), "NEREUS_CONTROL_URL": url, "NEREUS_CONTROL_FINGERPRINT": pinned}
    )


@pytest.fixture
def genuine(tmp_path) -> OwnCertificate:
    return made(tmp_path / "genuine")


async def test_the_pinned_authority_is_fetched_once_and_kept(tmp_path, genuine):
    async with Peer(genuine, genuine.shown_authority()).listening() as peer:
        values = member(tmp_path / "home", peer.url, pin(genuine))
        with pytest.raises(OSError, match="was not fetched yet"):
            control_plane.client_context(values, values.control_url)
        context = await control_plane.control_context(values)
        assert peer.received == b"GET /authority.pem HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % peer.port
        _, writer = await asyncio.open_connection("127.0.0.1", peer.port, ssl=context)
        writer.close()
        await obtain(values)
        assert peer.received.count(b"GET") == 1
    assert authority_file(values).stat().st_mode & 0o777 == 0o600


async def test_another_authority_is_refused_and_gets_no_token(tmp_path, genuine):
    other = made(tmp_path / "other")
    async with Peer(other, other.shown_authority()).listening() as peer:
        values = member(tmp_path / "home", peer.url, pin(genuine))
        link = await refused_link(values)
        assert link.state == "untrusted"
        assert pin(genuine) in link.detail and pin(other) in link.detail and "NEREUS_CONTROL_FINGERPRINT" in link.detail
        assert b"authority.pem" in peer.received and TOKEN.encode() not in peer.received
    assert not authority_file(values).exists()


async def test_an_impostor_that_shows_the_pinned_authority_gets_no_token(tmp_path, genuine):
    other = made(tmp_path / "other")
    async with Peer(other, genuine.shown_authority()).listening() as peer:
        values = member(tmp_path / "home", peer.url, pin(genuine))
        link = await refused_link(values)
        assert link.state == "down" and "certificate verify failed" in link.detail
        assert TOKEN.encode() not in peer.received


async def refused_link(values: Settings) -> MemberLink:
    link = MemberLink(
        Membership("node", "box", values.control_url, values.home, TOKEN),
        join=lambda _: control.JoinNode(name="box"),
        on_message=lambda message: None,
        context=lambda: control_plane.control_context(values),
    )
    running = asyncio.create_task(link.run())
    try:
        await eventually_async(lambda: link.state != "connecting")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return link


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (b"404 Not Found", b"{}"),
        (b"200 OK", b""),
        (b"200 OK", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        (b"200 OK", b"x" * 200_000),
    ],
)
async def test_what_shows_no_authority_is_said(tmp_path, genuine, status, shown):
    async with Peer(genuine, shown).listening() as peer:
        peer.status = status
        with pytest.raises(TrustError, match=r"shows no authority \(HTTP \d+\).*No token was sent"):
            await obtain(member(tmp_path / "home", peer.url, pin(genuine)))


async def test_what_does_not_speak_http_or_tls_is_said(tmp_path, genuine):
    async def shout(reader, writer):
        writer.write(b"220 mail\r\n")
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", port := free_ports(1)[0])
    with pytest.raises(OSError, match=r"(?i)ssl|connection"):
        await obtain(member(tmp_path / "home", f"https://127.0.0.1:{port}", pin(genuine)))
    server.close()


async def test_a_damaged_file_and_another_pin_are_fetched_again(tmp_path, genuine):
    async with Peer(genuine, genuine.shown_authority()).listening() as peer:
        values = member(tmp_path / "home", peer.url, pin(genuine))
        await obtain(values)
        whole = authority_file(values).read_bytes()
        for damaged in (b"", whole[:100], whole.replace(b"sha256:", b"sha256:0")):
            authority_file(values).write_bytes(damaged)
            await obtain(values)
            assert authority_file(values).read_bytes() == whole
        with pytest.raises(TrustError):
            await obtain(member(tmp_path / "home", peer.url, "00" * 32))


async def test_an_authority_that_was_rotated_is_followed_where_the_one_before_certifies_it(tmp_path, genuine):
    first = pin(genuine)
    peer = Peer(genuine, genuine.shown_authority())
    values = member(tmp_path / "home", peer.url, first)
    async with peer.listening():
        await obtain(values)
        assert not await refresh(values)
    genuine.rotate(["127.0.0.1"], authority=True)
    assert pin(genuine) != first
    peer = Peer(genuine, genuine.shown_authority())
    values = member(tmp_path / "home", peer.url, first)
    async with peer.listening():
        assert await refresh(values)
        assert not await refresh(values)
        await obtain(values)
        assert genuine.authority_file.read_bytes() in authority_file(values).read_bytes()
        # Shown by a server that is trusted, but certified by nobody who is.
        peer.shown = made(tmp_path / "other").shown_authority() + genuine.shown_authority()
        with pytest.raises(TrustError, match="does not certify"):
            await refresh(values)


def test_the_top_of_a_chain_is_its_authority(tmp_path, genuine):
    private = Authority(tmp_path)
    issued = private.issue("console", "box.example.com").certificate.read_bytes()
    root = private.file.read_bytes()
    assert top_of_chain(issued) == b"", "the authority is elsewhere"
    assert top_of_chain(issued + root) == root
    assert top_of_chain(issued, root + genuine.authority_file.read_bytes()) == root
    assert top_of_chain(root) == root


def test_a_fingerprint_is_what_openssl_prints(genuine):
    pinned = pin(genuine).removeprefix("sha256:")
    openssl = ":".join(pinned[i : i + 2] for i in range(0, 64, 2)).upper()
    for text in (pinned, f"sha256:{pinned}", openssl):
        values = Settings.from_environ({"NEREUS_CONTROL_URL": "https://box:8080", "NEREUS_CONTROL_FINGERPRINT": text})
        assert values.control_fingerprint == pinned
    assert control_plane.PATH == "/authority.pem"
