"""A connection's standing: what it is to its member now, by the registry. Synchronous."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from django.db import transaction
from django.utils import timezone

from registry import clock
from registry.models import Gateway, Member, Node
from scheduler import presence

#: close codes of a member that ends its link by itself, and of a connection that broke (RFC 6455, section 7.4.1)
CLOSED_IN_ORDER, CLOSED_ABNORMALLY = 1000, 1006


class Row(NamedTuple):
    state: str
    channel: str
    claim_channel: str
    certificate_until: datetime | None = None
    certificate_issuer: str = ""


class Standing(Enum):
    APPROVED = "approved"
    PENDING = "waits for an operator's approval"
    CLAIMING = "waits for an operator's decision on its claim"
    REPLACED = "another connection is the member now"
    UNCLAIMED = "its claim was refused"
    REVOKED = "revoked or deleted"


def standing(row: Row | None, channel: str, claims: bool) -> Standing:
    """The standing of a connection; ``claims``: it began with a claim that was not accepted yet."""
    if row is None or row.state == Member.State.REVOKED:
        return Standing.REVOKED
    if claims and row.channel != channel:
        return Standing.CLAIMING if row.claim_channel == channel else Standing.UNCLAIMED
    # Without a channel the member was written off, and its next message brings it back.
    if row.channel not in ("", channel):
        return Standing.REPLACED
    return Standing.APPROVED if row.state == Member.State.APPROVED else Standing.PENDING


def row_of(kind: type[Node] | type[Gateway], pk: int) -> Row | None:
    found = kind.objects.filter(pk=pk).values_list(*Row._fields).first()
    return Row(*found) if found is not None else None


def seen_all(members: Iterable[tuple[type[Node] | type[Gateway], int, str]]) -> None:
    """Store that members (kind, id, channel) sent something on their channels.

    A member that was written off meanwhile is connected again; the channel of a newer connection stays.

    Raises:
        DatabaseError, RedisError: it could not be stored; members look silent then, which does not count.
    """
    channels: dict[type[Node] | type[Gateway], dict[int, str]] = {}
    for kind, pk, channel in members:
        channels.setdefault(kind, {})[pk] = channel
    with transaction.atomic():
        for kind, known in channels.items():
            there = kind.objects.filter(pk__in=known)
            there.update(last_seen=timezone.now(), seen_s=clock.steady())
            for pk in there.filter(channel="").values_list("pk", flat=True):
                kind.objects.filter(pk=pk, channel="").update(channel=known[pk])
    # Only now: while messages cannot be stored, all members look silent.
    presence.seen()


def waits(kind: type[Node] | type[Gateway], pk: int, channel: str) -> None:
    """Note that the connection on this channel still waits for an operator."""
    now = clock.steady()
    kind.objects.filter(pk=pk, claim_channel=channel).update(claim_s=now)
    kind.objects.filter(pk=pk, channel=channel, state=Member.State.PENDING).update(last_seen=timezone.now(), seen_s=now)


def set_behind(kind: type[Node] | type[Gateway], pk: int, channel: str, since: datetime | None) -> None:
    """Keep since when the member has been behind; None: it has caught up."""
    kind.objects.filter(pk=pk, channel=channel).update(behind_since=since)


def last_words(code: int | None) -> str:
    if code == CLOSED_IN_ORDER:
        return "stopped in order"
    if code is None or code == CLOSED_ABNORMALLY:
        return "the connection broke: its process or box ended, or the network between"
    return f"the connection was closed with code {code}"


def left(kind: type[Node] | type[Gateway], pk: int, channel: str, words: str) -> None:
    """Note that the connection ended, unless the member has a newer one."""
    kind.objects.filter(pk=pk, channel=channel).update(channel="", last_words=words[:300])
    kind.objects.filter(pk=pk, claim_channel=channel).update(claim_channel="", claimed_at=None, claim_s=None)
