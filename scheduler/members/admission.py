"""Admission of members: credentials, join tokens, claims on names.

Synchronous: call it in a thread. A credential brings its member back, and only that one. A join token admits new
members, within its limits. With a join token a box may also *claim* an existing name: the member keeps its credential
until an operator accepts the claim. No operator is asked where nothing is taken from anybody: the member holds no
credential, or the claim comes from the control plane's own box with that box's token, whose holder can read an
operator's API token in the same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from registry import clock
from registry.audit import origins
from registry.audit.recording import record
from registry.members import use_token
from registry.models import Gateway, JoinToken, Member, Node, hash_secret, name_validator
from scheduler.members.peers import Peer
from workers import log
from workers.secret_kinds import new_secret

logger = log.get("members")

#: members of a kind that may wait for approval at once
MOST_PENDING = 100


UNKNOWN = Peer()


@dataclass(frozen=True)
class Identity:
    """The holder of a bearer token: a member, or a new one with a join token."""

    member: Node | Gateway | None
    token: JoinToken | None
    peer: Peer = UNKNOWN


class Refused(Exception):
    """The member may not join; the text says why and what an operator can do."""


class Admission(NamedTuple):
    """A connection's member.

    Attributes:
        replaced: channel of the member's older connection, which is to end; empty: there is none.
        claims: the connection only claims the member's name.
    """

    member: Node | Gateway
    replaced: str = ""
    claims: bool = False


def identify(kind: type[Node] | type[Gateway], secret: str | None, peer: Peer = UNKNOWN) -> Identity | None:
    """The identity behind a bearer token; None when nobody's.

    Raises:
        Refused: a join token that does not admit this member (any more).
    """
    if not secret:
        return None
    hashed = hash_secret(secret)
    member = kind.objects.filter(credential_hash=hashed).exclude(state=Member.State.REVOKED).first()
    if member is not None:
        return Identity(member, None, peer)
    token = JoinToken.objects.filter(token_hash=hashed).first()
    if token is None:
        return None
    _check_token(token, kind, peer)
    return Identity(None, token, peer)


def _check_token(token: JoinToken, kind: type[Node] | type[Gateway], peer: Peer) -> None:
    """Check what can be checked before the member has named itself."""
    wanted = kind.word
    if token.expired:
        raise Refused(f"join token {token.name!r} expired at {token.expires:%Y-%m-%d %H:%M} UTC; make another one")
    if token.kind not in (JoinToken.Kind.ANY, wanted):
        raise Refused(f"join token {token.name!r} admits {JoinToken.Kind(token.kind).label}, not a {wanted}")
    if token.own_box and not peer.own_box:
        raise Refused(f"join token {token.name!r} is for members on the control plane's own box; make another one")


def admit(
    kind: type[Node] | type[Gateway], identity: Identity, name: str, channel: str, machine: str = "", release: str = ""
) -> Admission:
    """Admit the member that a connection speaks for, made on its first visit.

    Its state says whether it is approved.

    Raises:
        Refused: the name is not valid, another member's, or revoked; or the join token has no use left.
    """
    try:
        name_validator(name)
    except ValidationError as error:
        raise Refused(f"name {name!r}: {name_validator.message}") from error
    way = "its credential" if identity.token is None else f"join token {identity.token.name}"
    with origins.acting(f"{kind.word} {name}", way, identity.peer.address), transaction.atomic():
        if identity.token is None:
            admission = _return(kind, identity.member, name)
        else:
            admission = _join(kind, identity, name, machine)
        return (
            _claim(admission, identity, channel) if admission.claims else _connect(admission, channel, machine, release)
        )


def _return(kind: type[Node] | type[Gateway], known: Node | Gateway, name: str) -> Admission:
    if known.name != name:
        raise Refused(f"name {name!r}: this credential belongs to {known.name!r}")
    # An operator may have accepted a claim since the credential was looked up.
    members = kind.objects.select_for_update().filter(pk=known.pk, credential_hash=known.credential_hash)
    member = members.exclude(state=Member.State.REVOKED).first()
    if member is None:
        raise Refused(f"name {name!r}: this credential has ended")
    # It has its credential, so that its join token is no longer worth anything to it.
    member.joined_with = None
    return Admission(member, member.channel)


def _join(kind: type[Node] | type[Gateway], identity: Identity, name: str, machine: str) -> Admission:
    """A new member with a join token, or one that takes an existing name.

    A box that lost the connection before it got its credential comes again with its token, which admits it again.
    """
    token = JoinToken.objects.select_for_update().filter(pk=identity.token.pk).first()
    if token is None:
        raise Refused(f"join token {identity.token.name!r} was deleted")
    _check_token(token, kind, identity.peer)
    member = kind.objects.select_for_update().filter(name=name).first()
    if member is None:
        if not token.auto_approve and kind.objects.filter(state=Member.State.PENDING).count() >= MOST_PENDING:
            raise Refused(f"{MOST_PENDING} {kind.word}s wait for approval, the most at once")
        _use(token)
        state = Member.State.APPROVED if token.auto_approve else Member.State.PENDING
        return Admission(kind(name=name, state=state, joined_with=token))
    if member.state == Member.State.REVOKED:
        raise Refused(f"name {name!r} was revoked; delete it in the console to let it join again")
    if member.channel and member.fresh:
        raise Refused(f"name {name!r} is connected already; choose another NEREUS_NODE_NAME")
    # The same boot of a kernel is the same box (:mod:`workers.machine`).
    again = member.joined_with_id == token.pk and machine != "" and machine == member.machine
    if member.state != Member.State.PENDING and not (
        token.auto_approve and (token.own_box or not member.credential_hash or again)
    ):
        return Admission(member, claims=True)
    if member.joined_with_id != token.pk or (member.credential_hash and not again):
        _use(token)
    member.state = Member.State.APPROVED if token.auto_approve else member.state
    member.credential_hash, member.joined_with = "", token
    return Admission(member)


def _use(token: JoinToken) -> None:
    if not use_token(token):
        times = "once" if token.uses == 1 else f"{token.uses} times"
        raise Refused(f"join token {token.name!r} may be used {times}, and has been; make another one")


def _claim(admission: Admission, identity: Identity, channel: str) -> Admission:
    member, token, address = admission.member, identity.token, identity.peer.address[:45]
    if member.claimed:
        raise Refused(f"name {member.name!r} is claimed by another box already; an operator must decide")
    if token.used_up:
        _use(token)
    if (member.claim_with_id, member.claim_address) != (token.pk, address):
        # Once, however often the same claimant comes again.
        record("claimed", member.word, member.name, after={"join_token": token.name, "address": address})
    type(member).objects.filter(pk=member.pk).update(
        claim_channel=channel,
        claim_with=token,
        claim_address=address,
        claimed_at=timezone.now(),
        claim_s=clock.steady(),
    )
    return admission


def _connect(admission: Admission, channel: str, machine: str, release: str) -> Admission:
    member = admission.member
    member.channel, member.machine, member.release, member.last_words = channel, machine, release, ""
    member.last_seen, member.seen_s = timezone.now(), clock.steady()
    member.behind_since = None
    member.save()
    return admission


def issue_credential(member: Node | Gateway, peer: Peer = UNKNOWN) -> str | None:
    """Issue a credential for an approved member that has none yet.

    None when it has one. Only the credential's hash is kept.
    """
    credential = new_secret()
    with origins.acting(f"{member.word} {member.name}", "admission", peer.address):
        issued = (
            type(member)
            .objects.filter(pk=member.pk, state=Member.State.APPROVED, credential_hash="")
            .update(credential_hash=hash_secret(credential))
        )
    return credential if issued else None
