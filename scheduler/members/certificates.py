"""Members' certificates: issued at the join, and anew while the member stays connected.

Their ends are compared with the wall clock, unlike all else (:mod:`registry.clock`): a certificate outlives boots. A
clock that was set ends certificates early; connected members then get others, and lose nothing meanwhile.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from registry import authority, clock
from registry.audit import origins
from registry.audit.recording import record
from registry.models import Gateway, Member, Node
from scheduler.members.peers import Peer
from scheduler.members.standing import Row
from workers import log
from workers.protocol.control import IssuedCertificate
from workers.token_bucket import TokenBucket
from workers.trust.authority import CertificateError
from workers.trust.member import VALIDITY, certify

logger = log.get("members")

#: refusals of one member that the audit log shows, and keys that it may have, at once and each second after it. A key
#: is lost with a disk, and all other members are notified of the next one
SHOWN, KEYS, PER_MEMBER_SECOND = 5.0, 5.0, 1 / 3600
#: characters of a reason, which may quote what a request says
_REASON = 500
#: when a certificate is replaced; seconds until the next one at the earliest, and after a refusal
RENEW_AFTER, RENEW_EVERY_S, REFUSED_S = timedelta(days=10), 15.0, 3600.0
#: a certificate that ends later was issued before the clock was set back
_LATEST = VALIDITY + timedelta(hours=1)

#: by member, whose id another database may give again: refusals that the audit log shows, and keys
_shown: dict[tuple[type, int, datetime], TokenBucket] = {}
_keys: dict[tuple[type, int, datetime], TokenBucket] = {}


def issue(member: Node | Gateway, request: str, peer: Peer, channel: str) -> IssuedCertificate:
    """Answer an approved member's request for a certificate; an empty one gets none.

    Nothing is issued where another connection than that of ``channel`` is the member meanwhile.
    """
    if not request:
        return IssuedCertificate()
    kind = member.word
    with origins.acting(f"{kind} {member.name}", "its certificate request", peer.address):
        try:
            return _issue(member, kind, request, channel)
        except CertificateError as error:
            reason = str(error)[:_REASON]
            logger.warning("certificate_refused", kind=kind, name=member.name, reason=reason)
            if _takes(_shown, member, SHOWN):
                record("refused a certificate", kind, member.name, after={"reason": reason})
            return IssuedCertificate(refused=reason)


def _takes(buckets: dict[tuple[type, int, datetime], TokenBucket], member: Node | Gateway, burst: float) -> bool:
    key = (type(member), member.pk, member.created)
    return buckets.setdefault(key, TokenBucket(burst, PER_MEMBER_SECOND)).takes(clock.steady())


@transaction.atomic
def _issue(member: Node | Gateway, kind: str, request: str, channel: str) -> IssuedCertificate:
    # Without a channel the member was written off, and its next message brings it back.
    rows = type(member).objects.filter(pk=member.pk, channel__in=("", channel))
    issuer = authority.locked()
    row = rows.select_for_update().filter(state=Member.State.APPROVED).first()
    if row is None:
        raise CertificateError(f"{kind} {member.name!r} is not approved, or another connection is the member now")
    issued = certify(issuer, request, kind, member.name, timezone.now())
    if holder := _holder(issued.key_hash, row):
        raise CertificateError(
            f"certificate request refused: its key is that of {holder}; remove the file of its key below "
            "NEREUS_HOME/members, and start it again"
        )
    if issued.key_hash != row.key_hash:
        if not _takes(_keys, member, KEYS):
            raise CertificateError("certificate request refused: another key each time; the next one in an hour")
        record("certified", kind, row.name, {"key": row.key_hash}, {"key": issued.key_hash})
    rows.update(
        key_hash=issued.key_hash,
        certificate_until=issued.until,
        certificate_issuer=issuer.key_hash,
        certificate_lapsed=False,
    )
    logger.info("certificate_issued", kind=kind, name=row.name, until=issued.until.isoformat())
    return IssuedCertificate(certificate=issued.certificate, authorities=issuer.trusted.decode())


def _holder(key_hash: str, member: Node | Gateway) -> str:
    for kind in (Node, Gateway):
        others = kind.objects.filter(key_hash=key_hash)
        if isinstance(member, kind):
            others = others.exclude(pk=member.pk)
        if found := others.first():
            return f"{found.word} {found.name!r}"
    return ""


def due(row: Row, issuer: str, now: datetime) -> bool:
    """Whether a member should have another certificate, by clock or authority."""
    if row.certificate_until is None:
        return True
    left = row.certificate_until - now
    return not VALIDITY - RENEW_AFTER <= left <= _LATEST or row.certificate_issuer != issuer
