"""Join tokens with limits, claims on names, and two connections of one member, at links' real end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from registry import clock, joining, members
from registry.audit.entries import AuditEntry
from registry.errors import Conflict
from registry.models import Device, Gateway, JoinToken, Member, Node
from scheduler.members import admission, configurations, link, standing
from scheduler.members.peers import of_scope
from tests.control.connections import HERE, Connection, token
from tests.control.linked import until
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

objects = sync_to_async


async def joined(name: str, secret: str, kind: str = "node", **fields) -> tuple[Connection, str]:
    """A member that joined, and its credential."""
    connection = Connection(kind, secret)
    answer = await connection.join(name, **fields)
    assert isinstance(answer, control.Joined) and answer.credential
    return connection, answer.credential


async def waiting(secret: str, name: str = "box") -> Connection:
    connection = Connection("node", secret)
    assert isinstance(await connection.join(name), control.Pending)
    return connection


async def refused(kind: str, secret: str, name: str = "box", **fields) -> tuple[int, str]:
    connection = Connection(kind, secret)
    await connection.open()
    joins = {"node": control.JoinNode, "gateway": control.JoinGateway}
    fields = {"devices": (), **fields} if kind == "node" else {"address": "http://a", **fields}
    await connection.say(joins[kind](name=name, **fields))
    return await connection.closed()


async def node(name: str = "box") -> Node:
    return await objects(Node.objects.get)(name=name)


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_an_expired_token_admits_nobody_and_says_when_it_expired():
    secret = await token(expires=timezone.now() - timedelta(minutes=1))
    code, reason = await refused("node", secret)
    assert code == control.CLOSE_UNAUTHORIZED and "'rack' expired at 20" in reason
    assert not await objects(Node.objects.exists)()


async def test_a_token_admits_as_many_members_as_it_may():
    secret = await token(uses=2)
    first, _ = await joined("one", secret)
    second, _ = await joined("two", secret, kind="gateway")
    code, reason = await refused("node", secret, "three")
    assert code == control.CLOSE_UNAUTHORIZED and "'rack' may be used 2 times, and has been" in reason
    row = await objects(JoinToken.objects.get)()
    assert row.used == 2 and row.used_up
    await first.leave()
    await second.leave()


async def test_a_member_that_waits_may_come_again_with_a_token_that_it_has_used_up():
    secret = await token(uses=1, auto_approve=False)
    for _ in range(3):
        connection = await waiting(secret)
        await connection.leave()
    assert (await objects(JoinToken.objects.get)()).used == 1


async def test_a_box_that_never_got_its_credential_may_come_again_with_the_token_that_it_used():
    """The control plane may stop between a join and its answer. Other boxes gain nothing by that."""
    secret = await token(uses=1)
    for _ in range(3):
        lost, credential = await joined("box", secret, machine="boot-1")
        await lost.leave()
    assert (await objects(JoinToken.objects.get)()).used == 1
    for elsewhere in ("boot-2", ""):
        assert "may be used once" in (await refused("node", secret, machine=elsewhere))[1]
    # From its first return with the credential on, the token is spent.
    back = Connection("node", credential)
    assert isinstance(await back.join("box", machine="boot-1"), control.Joined)
    await back.leave()
    assert "may be used once" in (await refused("node", secret, machine="boot-1"))[1]


@pytest.mark.parametrize(("kind", "other"), [("node", "gateway"), ("gateway", "node")])
async def test_a_token_of_one_kind_admits_no_other(kind, other):
    secret = await token(kind=kind)
    _, reason = await refused(other, secret)
    assert f"'rack' admits {kind}s, not a {other}" in reason
    connection, _ = await joined("box", secret, kind=kind)
    await connection.leave()


async def test_the_token_of_a_start_admits_members_of_its_own_box_alone():
    secret = await token("local", own_box=True)
    code, reason = await refused("node", secret)
    assert code == control.CLOSE_UNAUTHORIZED and "the control plane's own box" in reason
    for name, address in (
        ("loopback", "127.0.0.1"),
        ("six", "::1"),
        ("own-address", HERE),
        ("mapped", "::ffff:127.0.0.1"),
    ):
        connection = Connection("node", secret, address)
        assert isinstance(await connection.join(name), control.Joined), address
        await connection.leave()


@pytest.mark.parametrize("scope", [{}, {"client": None, "server": ("", None)}, {"client": ("", 0), "server": ("", 0)}])
def test_a_connection_of_unknown_origin_is_from_another_box(scope):
    assert not of_scope(scope).own_box


async def test_a_deleted_token_ends_with_the_connections_that_still_hold_it():
    secret = await token()
    connection = Connection("node", secret)
    await connection.open()
    await objects(JoinToken.objects.all().delete)()
    await connection.say(control.JoinNode(name="box", devices=()))
    code, reason = await connection.closed()
    assert code == control.CLOSE_UNAUTHORIZED and ("deleted" in reason or "unknown" in reason)


async def test_so_many_may_wait_for_approval_and_no_more(monkeypatch):
    monkeypatch.setattr(admission, "MOST_PENDING", 2)
    secret = await token(auto_approve=False)
    queue = [await waiting(secret, f"box-{number}") for number in range(2)]
    _, reason = await refused("node", secret, "one-more")
    assert "2 nodes wait for approval" in reason
    for connection in queue:
        await connection.leave()


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto_approve", [True, False])
async def test_a_claim_takes_nothing_before_an_operator_accepts_it(auto_approve):
    member, credential = await joined("box", await token())
    await member.leave()
    claimant = Connection("node", await token("other", auto_approve=auto_approve))
    answer = await claimant.join("box")
    assert isinstance(answer, control.Pending) and "accept this claim" in answer.reason
    row = await node()
    assert row.claimed and row.state == Member.State.APPROVED and not row.channel
    # The credential goes on meanwhile.
    member = Connection("node", credential)
    assert (await member.join("box")) == control.Joined(member=row.pk, credential=None)
    await objects(members.accept_claim)(row)
    answer = await claimant.received(control.Joined)
    assert answer.credential and answer.credential != credential
    code, reason = await member.closed()
    assert code == control.CLOSE_REPLACED and "claim" in reason
    code, _ = await refused("node", credential)
    assert code == control.CLOSE_UNAUTHORIZED, "the old credential has ended"
    row = await node()
    assert not row.claimed and row.joined_with_id == (await objects(JoinToken.objects.get)(name="other")).pk
    await claimant.leave()
    claimant = Connection("node", answer.credential)
    assert isinstance(await claimant.join("box"), control.Joined)
    await claimant.leave()


async def test_a_refused_claim_is_turned_away_and_the_member_goes_on():
    member, credential = await joined("box", await token())
    await member.leave()
    claimant = await waiting(await token("other"))
    await objects(members.refuse_claim)(await node())
    code, reason = await claimant.closed()
    assert code == control.CLOSE_UNAUTHORIZED and "refused this claim" in reason
    member = Connection("node", credential)
    assert isinstance(await member.join("box"), control.Joined)
    await member.leave()


async def test_a_claim_lasts_as_long_as_its_connection_and_there_is_one_at_a_time(later):
    member, _ = await joined("box", await token())
    await member.leave()
    secret = await token("other")
    claimant = await waiting(secret)
    _, reason = await refused("node", secret)
    assert "claimed by another box already" in reason
    await claimant.leave()
    with pytest.raises(Conflict, match="nobody claims"):
        await objects(members.accept_claim)(await node())
    # One that web's end left behind holds nobody off for long.
    await objects(Node.objects.update)(claim_channel="gone", claim_s=clock.steady())
    later(20.0)
    claimant = await waiting(secret)
    await claimant.leave()


async def test_a_claim_needs_a_use_that_is_left_when_it_is_accepted():
    member, _ = await joined("box", await token())
    await member.leave()
    secret = await token("other", uses=1)
    claimant = await waiting(secret)
    assert (await objects(JoinToken.objects.get)(name="other")).used == 0
    another, _ = await joined("new", secret)
    with pytest.raises(Conflict, match="used up"):
        await objects(members.accept_claim)(await node())
    assert (await node()).credential_hash
    await claimant.leave()
    await another.leave()
    _, reason = await refused("node", secret)
    assert "may be used once" in reason


async def test_nobody_is_asked_where_nothing_is_taken():
    """A credential was rotated away; the control plane's own box has an operator's token in its file."""
    secret = await token()
    member, _ = await joined("box", secret)
    await member.leave()
    await objects(Node.objects.update)(credential_hash="")
    member, credential = await joined("box", secret)
    await member.leave()
    own = Connection("node", await token("local", own_box=True), "127.0.0.1")
    answer = await own.join("box")
    assert isinstance(answer, control.Joined) and answer.credential not in (None, credential)
    await own.leave()


async def test_a_token_without_approval_takes_no_place_in_the_queue_of_another():
    """An operator may be looking at the claim that waits."""
    first = await waiting(await token(auto_approve=False))
    _, reason = await refused("node", await token("other", auto_approve=False))
    assert "connected already" in reason
    await objects(members.set_state)(await node(), Member.State.APPROVED)
    assert (await first.received(control.Joined)).credential
    await first.leave()


async def test_who_waits_is_seen_to_wait(monkeypatch, later):
    monkeypatch.setattr(configurations, "REREAD_S", 0.05)
    pending = await waiting(await token(auto_approve=False))
    later(60.0)
    await until(sync_to_async(lambda: Node.objects.get().fresh), "the waiting node is seen")
    await pending.leave()


async def test_a_revoked_name_stays_revoked():
    member, credential = await joined("box", await token())
    claimed = await node()
    await objects(members.set_state)(claimed, Member.State.REVOKED)
    code, _ = await member.closed()
    assert code == control.CLOSE_UNAUTHORIZED
    for secret in (credential, "secret of rack"):
        code, _ = await refused("node", secret)
        assert code == control.CLOSE_UNAUTHORIZED


# --- two connections --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("kind", ["node", "gateway"])
async def test_of_two_connections_under_one_credential_the_older_is_closed(kind, announced, monkeypatch):
    monkeypatch.setattr(configurations, "REREAD_S", 3600.0 if announced else 0.05)
    if not announced:

        async def lost(self):
            """The word is lost: the older connection finds out by polling."""

        monkeypatch.setattr(link.AcceptedLink, "announce_change", lost)
    older, credential = await joined("box", await token(), kind=kind)
    newer = Connection(kind, credential)
    assert isinstance(await newer.join("box"), control.Joined)
    code, reason = await older.closed()
    assert code == control.CLOSE_REPLACED and "newer" in reason
    model = Node if kind == "node" else Gateway
    row = await objects(model.objects.get)()
    assert row.channel and row.connected, "the end of the older one changes nothing"
    stats = {"type": f"{kind}_stats", "config_hash": "", "plan_version": 0}
    await newer.say(stats | ({"devices": []} if kind == "node" else {"applications": {}, "ready": True}))
    await newer.leave()


@pytest.mark.parametrize(
    ("row", "claims", "found"),
    [
        (None, False, "REVOKED"),
        (("revoked", "c", ""), False, "REVOKED"),
        (("approved", "c", ""), False, "APPROVED"),
        (("approved", "", ""), False, "APPROVED"),
        (("approved", "other", ""), False, "REPLACED"),
        (("pending", "other", ""), False, "REPLACED"),
        (("pending", "c", ""), False, "PENDING"),
        (("approved", "other", "c"), True, "CLAIMING"),
        (("approved", "", "c"), True, "CLAIMING"),
        (("approved", "c", ""), True, "APPROVED"),
        (("approved", "", ""), True, "UNCLAIMED"),
        (("approved", "other", "another"), True, "UNCLAIMED"),
        (("revoked", "other", "c"), True, "REVOKED"),
    ],
)
def test_a_connections_standing(row, claims, found):
    known = standing.Row(*row) if row is not None else None
    assert standing.standing(known, "c", claims) is standing.Standing[found]


# --- audit ------------------------------------------------------------------------------------------------------------


async def test_joins_and_claims_are_in_the_audit_log_with_token_and_address():
    await objects(AuditEntry.objects.all().delete)()
    member, _ = await joined("box", await token())
    await member.leave()
    secret = await token("other")
    for _ in range(3):
        claimant = await waiting(secret)
        await claimant.leave()
    claimant = Connection("node", secret)
    await claimant.join("box")
    await objects(members.accept_claim)(await node())
    await claimant.received(control.Joined)
    await claimant.leave()

    def entries(action: str) -> list[tuple]:
        found = AuditEntry.objects.filter(kind="node", ref="box", action=action).order_by("id")
        return [(entry.actor, entry.origin, entry.address) for entry in found]

    made = await objects(entries)("created")
    assert made == [("node box", "join token rack", "10.0.0.7")]
    claims = await objects(entries)("claimed")
    assert claims == [("node box", "join token other", "10.0.0.7")], "once, however often it comes"
    assert ("node box", "admission", "10.0.0.7") in await objects(entries)("changed")
    (accepted,) = await objects(list)(AuditEntry.objects.filter(action="accepted a claim"))
    assert accepted.after == {"join_token": "other", "address": "10.0.0.7"}


async def test_a_gateways_address_is_changed_by_the_gateway():
    secret = await token()
    gateway, credential = await joined("edge", secret, kind="gateway")
    await gateway.leave()
    gateway = Connection("gateway", credential)
    await gateway.join("edge", address="http://elsewhere:8000")
    await gateway.received(control.GatewayConfig)
    entry = await objects(AuditEntry.objects.filter(kind="gateway", action="changed").first)()
    assert (entry.actor, entry.origin, entry.address) == ("gateway edge", "its join", "10.0.0.7")
    assert entry.after == {"address": "http://elsewhere:8000"}
    await gateway.leave()


async def test_devices_of_a_box_whose_name_was_taken_over_serve_no_more():
    info = control.DeviceInfo("box/cpu0", "cpu", "cpu-old-1c", "", (0,), None, 2**30, "unix:/old")
    member, _ = await joined("box", await token(), devices=(info,))
    await member.leave()
    claimant = Connection("node", await token("other"))
    await claimant.join("box", devices=())
    assert await objects(Device.objects.count)() == 1, "a claim changes no devices"
    await objects(members.accept_claim)(await node())
    await claimant.received(control.NodeConfig)
    assert await objects(lambda: Device.objects.get().detail)() == Device.GONE
    await claimant.leave()


@pytest.mark.parametrize(
    "url", ["http://[::1", "https://[x]", "http://a:99999", "https://exa mple", "https://a\nb", "https://" + "a" * 180]
)
def test_a_join_line_for_an_address_that_is_none_is_refused_and_leaves_no_token(url, db):
    with pytest.raises(Conflict, match="must be http") as refused:
        joining.join_line("node", url, timedelta(minutes=5))
    assert refused.value.field == "control" and not JoinToken.objects.exists()
