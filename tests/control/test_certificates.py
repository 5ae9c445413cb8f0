"""Members' certificates: issued, renewed, refused, taken back, at links' real end and over real links."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.utils import timezone

from registry import clock, members
from registry.audit.entries import AuditEntry
from registry.errors import Conflict
from registry.models import Gateway, Node
from scheduler.control import upkeep
from scheduler.members import certificates, contents
from scheduler.members.peers import Peer
from tests.control.connections import Connection, token
from tests.control.linked import cluster, until
from tests.control.world import listening, seen
from tests.trust.worlds import handshake
from workers.protocol import control
from workers.trust.member import MemberIdentity

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

objects = sync_to_async
DAY = timedelta(days=1)


async def joined(name: str, secret: str, kind: str, identity: MemberIdentity, **fields) -> Connection:
    connection = Connection(kind, secret)
    answer = await connection.join(name, certificate_request=identity.request(), **fields)
    assert isinstance(answer, control.Joined) and not answer.issued.refused, answer
    identity.store(answer.issued.certificate, answer.issued.authorities)
    return connection


def shown(action: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=action))


# --- linked members ---------------------------------------------------------------------------------------------------


async def test_members_that_join_know_each_other_and_a_revoked_one_is_forgotten(tmp_path):
    async with cluster(tmp_path) as (gateway, node):
        await until(lambda: len(gateway.held.peers) == 2 and len(node.config.peers) == 1, "the peers")
        front, box = gateway.held.peers
        assert (front.role, front.name, front.key_hash) == ("gateway", "front", gateway.identity.key_hash)
        assert front.rank > 0 and box.rank == 0
        assert (box.role, box.name, box.key_hash) == ("node", "box", node.identity.key_hash)
        assert node.config.peers == (front,)
        contexts = node.identity.server_context(), gateway.identity.client_context()
        assert handshake(*contexts) == (("node", "box", box.key_hash), ("gateway", "front", front.key_hash))
        row = await objects(Node.objects.get)()
        assert 29 * DAY < row.certificate_until - timezone.now() <= 30 * DAY
        await objects(members.set_state)(row, Node.State.REVOKED)
        await until(lambda: gateway.held.peers == (front,), "the revoked node to be taken off")


async def test_a_certificate_that_gets_old_is_renewed_without_a_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "RENEW_EVERY_S", 0.0)
    async with cluster(tmp_path) as (gateway, node):
        replaced = []
        node.identity.on_replaced(lambda: replaced.append(node.identity.pem))

        async def renewed() -> Node | None:
            row = await objects(Node.objects.get)()
            is_new = 29 * DAY < row.certificate_until - timezone.now() <= 30 * DAY and not row.certificate_lapsed
            return row if is_new and len(replaced) > before else None

        # Old, and from before the clock was set back.
        for left in (19 * DAY, 31 * DAY, -400 * DAY):
            before = len(replaced)
            await objects(Node.objects.update)(certificate_until=timezone.now() + left)
            row = await until(renewed, "the next certificate")
        assert row.key_hash == node.identity.key_hash == gateway.held.peers[-1].key_hash


async def test_the_authority_is_replaced_while_members_accept_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "RENEW_EVERY_S", 0.0)
    async with cluster(tmp_path) as (gateway, node):
        ends = [node.identity, gateway.identity]
        before = [end.pem for end in ends]
        contexts = [(end.server_context(), end.client_context()) for end in ends]

        async def renewed() -> bool:
            """Handshakes in all combinations, with contexts from before and of now."""
            contexts.extend((end.server_context(), end.client_context()) for end in ends)
            for server, _ in contexts:
                for _, client in contexts:
                    await asyncio.to_thread(handshake, server, client)
            del contexts[2:]
            return all(end.pem != was for end, was in zip(ends, before, strict=True))

        with monkeypatch.context() as before_any_renewal:
            before_any_renewal.setattr(certificates, "due", lambda *_: False)
            await objects(call_command)("rotate", "members-authority")
            with pytest.raises(Conflict, match=r"box.*still with a certificate of the authority before"):
                await objects(members.replace_authority)()
        await until(renewed, "certificates of the next authority")
        assert (await objects(shown)("replaced"))[0].ref == "members"
        # And once all have it the next one may follow.
        before[:] = [end.pem for end in ends]
        contexts[:] = [(end.server_context(), end.client_context()) for end in ends]
        await objects(call_command)("rotate", "members-authority")
        await until(renewed, "certificates of the third authority")


async def test_rotate_says_who_has_not_renewed_and_replaces_nothing(tmp_path):
    secret = await token()
    box = await joined("box", secret, "node", MemberIdentity(tmp_path / "box.pem", "node", "box"))
    await objects(Node.objects.update)(certificate_issuer="another")
    with pytest.raises(CommandError, match=r"members-authority: box: still with a certificate"):
        await objects(call_command)("rotate", "members-authority", "members")
    assert (await objects(Node.objects.get)()).credential_hash
    await box.leave()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_text", ["garbage", "\0", "-----BEGIN CERTIFICATE REQUEST-----", "another", "gateway"])
async def test_a_request_that_is_not_the_members_is_refused_and_the_member_serves_on(tmp_path, request_text):
    others = {
        "another": MemberIdentity(tmp_path / "a.pem", "node", "another"),
        "gateway": MemberIdentity(tmp_path / "g.pem", "gateway", "box"),
    }
    request = others[request_text].request() if request_text in others else request_text
    connection = Connection("node", await token())
    answer = await connection.join("box", certificate_request=request)
    assert isinstance(answer, control.Joined) and answer.credential
    assert "certificate request" in answer.issued.refused and not answer.issued.certificate
    (entry,) = await objects(shown)("refused a certificate")
    assert entry.actor == "node box" and entry.after["reason"] == answer.issued.refused
    assert not (await objects(contents.read)()).shared.nodes
    # Asked properly it gets one.
    await connection.leave()
    identity = MemberIdentity(tmp_path / "box.pem", "node", "box")
    connection = await joined("box", answer.credential, "node", identity)
    assert [peer.key_hash for peer in (await objects(contents.read)()).shared.nodes] == [identity.key_hash]
    await connection.leave()


async def test_a_key_belongs_to_one_member_also_once_it_is_revoked(tmp_path):
    secret = await token()
    first = await joined("box", secret, "node", MemberIdentity(tmp_path / "a.pem", "node", "box"))
    copied = MemberIdentity(tmp_path / "a.pem", "node", "copy")
    for state in (Node.State.APPROVED, Node.State.REVOKED):
        await objects(members.set_state)(await objects(Node.objects.get)(name="box"), state)
        connection = Connection("node", secret)
        answer = await connection.join("copy", certificate_request=copied.request())
        assert "its key is that of node 'box'" in answer.issued.refused
        await connection.leave()
        await objects(Node.objects.filter(name="copy").delete)()
    await first.leave()


async def test_refusals_do_not_fill_the_audit_log():
    connection = Connection("node", await token())
    await connection.join("box")
    row = await objects(Node.objects.get)()
    for _ in range(12):
        assert (await objects(certificates.issue)(row, "garbage", Peer(), row.channel)).refused
    assert 1 < len(await objects(shown)("refused a certificate")) <= certificates.SHOWN
    await connection.leave()


async def test_a_connection_that_was_replaced_gets_no_certificate(tmp_path):
    old, new = (MemberIdentity(tmp_path / name, "node", "box") for name in ("old", "new"))
    connection = await joined("box", await token(), "node", old)
    await objects(Node.objects.update)(channel="another")
    row = await objects(Node.objects.get)()
    answer = await objects(certificates.issue)(row, new.request(), Peer(), "not the member's")
    assert "another connection is the member now" in answer.refused
    assert (await objects(Node.objects.get)()).key_hash == old.key_hash
    await connection.leave()


async def test_a_member_may_have_another_key_now_and_then(tmp_path):
    secret, answers = await token(), []
    for number in range(8):
        await objects(Node.objects.update)(credential_hash="")
        connection = Connection("node", secret)
        identity = MemberIdentity(tmp_path / str(number), "node", "box")
        answers.append((await connection.join("box", certificate_request=identity.request())).issued)
        await connection.leave()
    assert [bool(answer.certificate) for answer in answers] == [True] * 5 + [False] * 3
    assert "another key each time" in answers[-1].refused
    assert len(await objects(shown)("certified")) == 5


async def test_a_key_that_was_refused_gets_its_certificate_while_the_one_before_is_young(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "KEYS", 1.0)
    monkeypatch.setattr(certificates, "REFUSED_S", 0.0)
    secret = await token()
    before = await joined("box", secret, "node", MemberIdentity(tmp_path / "before", "node", "box"))
    await before.leave()
    await objects(Node.objects.update)(credential_hash="")
    identity = MemberIdentity(tmp_path / "another", "node", "box")
    connection = Connection("node", secret)
    answer = await connection.join("box", certificate_request=identity.request())
    assert "the next one in an hour" in answer.issued.refused
    # The hour is over.
    monkeypatch.setattr(certificates, "_keys", {})
    while not (issued := await connection.received(control.IssuedCertificate)).certificate:
        pass
    identity.store(issued.certificate, issued.authorities)
    assert (await objects(Node.objects.get)()).key_hash == identity.key_hash
    await connection.leave()


async def test_a_member_that_waits_gets_no_certificate_before_it_is_approved(tmp_path):
    identity = MemberIdentity(tmp_path / "a.pem", "node", "box")
    connection = Connection("node", await token(auto_approve=False))
    assert isinstance(await connection.join("box", certificate_request=identity.request()), control.Pending)
    row = await objects(Node.objects.get)()
    assert not row.key_hash
    await objects(members.set_state)(row, Node.State.APPROVED)
    answer = await connection.received(control.Joined)
    identity.store(answer.issued.certificate, answer.issued.authorities)
    await connection.leave()


# --- who is listed ----------------------------------------------------------------------------------------------------


async def test_gateways_keep_their_ranks_whoever_is_revoked(tmp_path):
    secret = await token()
    names = ["zebra", "ape", "cat"]
    links = [
        await joined(name, secret, "gateway", MemberIdentity(tmp_path / name, "gateway", name), core=f"{name}:8002")
        for name in names
    ]
    before = (await objects(contents.read)()).shared.gateways
    assert [peer.name for peer in before] == names
    assert [peer.rank for peer in before] == sorted({peer.rank for peer in before})
    assert [peer.address for peer in before] == ["zebra:8002", "ape:8002", "cat:8002"]
    await objects(members.set_state)(await objects(Gateway.objects.get)(name="zebra"), Gateway.State.REVOKED)
    assert (await objects(contents.read)()).shared.gateways == before[1:]
    for link in links:
        await link.leave()


async def test_a_box_whose_name_was_given_away_is_no_longer_listed(tmp_path):
    secret = await token()
    old, new = (MemberIdentity(tmp_path / name, "node", "box") for name in ("old", "new"))
    connection = await joined("box", secret, "node", old)
    await connection.leave()
    claimant = Connection("node", secret)
    assert isinstance(await claimant.join("box", certificate_request=new.request()), control.Pending)
    assert [peer.key_hash for peer in (await objects(contents.read)()).shared.nodes] == [old.key_hash]
    await objects(members.accept_claim)(await objects(Node.objects.get)())
    assert old.key_hash not in [peer.key_hash for peer in (await objects(contents.read)()).shared.nodes]
    answer = await claimant.received(control.Joined)
    new.store(answer.issued.certificate, answer.issued.authorities)
    assert [peer.key_hash for peer in (await objects(contents.read)()).shared.nodes] == [new.key_hash]
    await claimant.leave()


def certified(kind: type[Node] | type[Gateway], name: str, left: timedelta, **fields) -> Node | Gateway:
    """A member whose certificate ends after ``left``."""
    until = timezone.now() + left
    return kind.objects.create(name=name, state="approved", key_hash=name * 8, certificate_until=until, **fields)


def test_a_member_whose_certificate_ended_while_it_was_away_is_taken_off(clean_redis):
    away = certified(Node, "away", -DAY)
    certified(Gateway, "fresh", DAY)
    # Connected, as after a clock that was set ahead: it gets another one.
    certified(Gateway, "here", -DAY, channel="c", **seen())
    assert upkeep.lapse_ended_certificates() == 0, "silence does not count yet"
    listening(clean_redis)
    assert upkeep.lapse_ended_certificates() == 1
    assert upkeep.lapse_ended_certificates() == 0
    shared = contents.read().shared
    assert [peer.name for peer in shared.gateways] == ["fresh", "here"] and not shared.nodes
    (entry,) = shown("certificate ended")
    assert entry.ref == "away" and entry.after["until"] == away.certificate_until.isoformat(timespec="seconds")


def test_a_member_that_reconnects_after_a_short_restart_stays(clean_redis):
    listening(clean_redis)
    certified(Gateway, "back soon", -DAY, **seen(15.0))
    assert upkeep.lapse_ended_certificates() == 0
    assert not shown("certificate ended")


def test_a_member_that_renewed_meanwhile_stays():
    row = certified(Node, "box", -DAY)
    Node.objects.update(certificate_until=timezone.now() + DAY)
    assert not members.lapse(row)
    assert not Node.objects.get().certificate_lapsed


@pytest.mark.parametrize("years", [-50, 14])
async def test_a_clock_that_is_set_ends_no_connected_members_certificate(years, tmp_path, monkeypatch, clean_redis):
    listening(clean_redis)
    monkeypatch.setattr(certificates, "RENEW_EVERY_S", 0.0)
    async with cluster(tmp_path) as (gateway, node):
        await until(lambda: len(gateway.held.peers) == 2, "the peers")
        peers = gateway.held.peers
        right, before = timezone.now, node.identity.pem
        wall, error = clock.wall, timedelta(days=365 * years)
        monkeypatch.setattr(timezone, "now", lambda: right() + error)
        monkeypatch.setattr(clock, "wall", lambda: wall() + error.total_seconds())
        assert await objects(upkeep.lapse_ended_certificates)() == 0
        await until(lambda: node.identity.pem != before, "a certificate by the clock that was set")
        before = node.identity.pem
        monkeypatch.setattr(timezone, "now", right)
        monkeypatch.setattr(clock, "wall", wall)
        assert await objects(upkeep.lapse_ended_certificates)() == 0
        await until(lambda: node.identity.pem != before, "a certificate by the right clock")
        assert gateway.held.peers == peers
