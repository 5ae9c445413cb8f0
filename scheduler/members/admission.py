"""Admission of members: tokens, credentials, approval. Synchronous: call it in a thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Case, F, Value, When
from django.utils import timezone

from registry import clock
from registry.models import Gateway, JoinToken, Member, Node, hash_secret, name_validator, new_secret
from scheduler.members import presence
from workers import log

logger = log.get("members")


@dataclass(frozen=True)
class Identity:
    """The holder of the token: an existing member, or a new one with a join token."""

    member: Node | Gateway | None
    token: JoinToken | None


class Refused(Exception):
    """The member may not join; the text says why and what an operator can do."""


def identify(kind: type[Node] | type[Gateway], token: str | None) -> Identity | None:
    """The identity behind a bearer token; None when nobody's."""
    if not token:
        return None
    hashed = hash_secret(token)
    member = kind.objects.filter(credential_hash=hashed).exclude(state=Member.State.REVOKED).first()
    if member is not None:
        return Identity(member, None)
    join_token = JoinToken.objects.filter(token_hash=hashed).first()
    return Identity(None, join_token) if join_token is not None else None


@transaction.atomic
def admit(kind: type[Node] | type[Gateway], identity: Identity, name: str, channel: str) -> Node | Gateway:
    """The member that this connection speaks for, made on its first visit. Its state says whether it is approved.

    A known member may reconnect under its credential only as itself. A join token may take an existing name over (a
    box that was installed anew), which needs approval again unless the token approves by itself.

    Raises:
        Refused: the name is not valid, another member's, or revoked.
    """
    try:
        name_validator(name)
    except ValidationError as error:
        raise Refused(f"name {name!r}: {name_validator.message}") from error
    if identity.member is not None:
        if identity.member.name != name:
            raise Refused(f"name {name!r}: this credential belongs to {identity.member.name!r}")
        member = kind.objects.select_for_update().get(pk=identity.member.pk)
    else:
        member = kind.objects.select_for_update().filter(name=name).first()
        approved = Member.State.APPROVED if identity.token.auto_approve else Member.State.PENDING
        if member is None:
            member = kind(name=name, state=approved)
        elif member.state == Member.State.REVOKED:
            raise Refused(f"name {name!r} was revoked; delete it in the console to let it join again")
        elif member.channel and member.fresh:
            raise Refused(f"name {name!r} is connected already; choose another NEREUS_NODE_NAME")
        else:
            member.state = approved
        member.credential_hash = ""
    member.channel = channel
    member.last_seen, member.seen_s = timezone.now(), clock.steady()
    member.behind_since = None
    member.save()
    return member


def issue_credential(member: Node | Gateway) -> str | None:
    """A credential for an approved member that has none yet; None when it has one. Only its hash is kept."""
    credential = new_secret()
    issued = (
        type(member)
        .objects.filter(pk=member.pk, state=Member.State.APPROVED, credential_hash="")
        .update(credential_hash=hash_secret(credential))
    )
    return credential if issued else None


def state_of(kind: type[Node] | type[Gateway], pk: int) -> str | None:
    """A member's state now; None when it was deleted."""
    return kind.objects.filter(pk=pk).values_list("state", flat=True).first()


def seen(kind: type[Node] | type[Gateway], pk: int, channel: str) -> None:
    """The member sent something on this channel. A member that was written off meanwhile is connected again; the
    channel of a newer connection stays.

    Raises:
        DatabaseError, RedisError: it could not be stored; members look silent then, which does not count.
    """
    current = Case(When(channel="", then=Value(channel)), default=F("channel"))
    kind.objects.filter(pk=pk).update(last_seen=timezone.now(), seen_s=clock.steady(), channel=current)
    # Only now: while messages cannot be stored, all members look silent.
    presence.seen()


def set_behind(kind: type[Node] | type[Gateway], pk: int, channel: str, since: datetime | None) -> None:
    """Keep since when the member on this channel has been behind; None: it has caught up."""
    kind.objects.filter(pk=pk, channel=channel).update(behind_since=since)


def left(kind: type[Node] | type[Gateway], pk: int, channel: str) -> None:
    """The connection ended; a newer connection of the same member is left alone."""
    kind.objects.filter(pk=pk, channel=channel).update(channel="")
