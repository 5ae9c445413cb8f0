"""Operations on members and secrets: admission, claims, cordons, keys and tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, models, transaction
from django.utils import timezone

from registry import authority, events, usable
from registry.audit.recording import record
from registry.errors import Conflict
from registry.models import ApiKey, ApiToken, Device, Gateway, JoinToken, Member, Node, hash_secret
from workers.secret_kinds import new_secret

#: applications that an error names
NAMED = 5


def set_state(member: Node | Gateway, state: Member.State) -> Node | Gateway:
    """Approve or revoke; doing so twice changes nothing."""
    with transaction.atomic():
        if type(member).objects.filter(pk=member.pk).exclude(state=state).update(state=state):
            events.changed(member.word, member.name)
    member.refresh_from_db()
    return member


def revoke(node: Node, force: bool = False) -> Node:
    """Turn a node away; doing so twice changes nothing.

    Raises Conflict: applications are served by it alone, and ``force`` is not given.
    """
    with transaction.atomic():
        row = Node.objects.select_for_update().get(pk=node.pk)
        if row.state == Member.State.APPROVED:
            _check_others_serve(row, force, "revoke")
        return set_state(node, Member.State.REVOKED)


def cordon(node: Node, seconds: int | None = None, force: bool = False) -> Node:
    """Have plans leave the node's devices out; doing so twice changes nothing.

    ``seconds``: when the order ends, unless it had no end before. Raises Conflict: applications are served by this node
    alone, and ``force`` is not given.
    """
    until = timezone.now() + timedelta(seconds=seconds) if seconds is not None else None
    with transaction.atomic():
        row = Node.objects.select_for_update().get(pk=node.pk)
        if row.cordoned_at is None:
            _check_others_serve(row, force, "cordon")
            Node.objects.filter(pk=node.pk).update(cordoned_at=timezone.now(), cordoned_until=until)
            events.changed("node", node.name)
        elif row.cordoned_until is not None:
            Node.objects.filter(pk=node.pk).update(cordoned_until=until)
    node.refresh_from_db()
    return node


def _check_others_serve(node: Node, force: bool, order: str) -> None:
    alone = [] if force else usable.alone([node]).get(node.pk, [])
    if alone:
        more = f" and {len(alone) - NAMED} more" if len(alone) > NAMED else ""
        raise Conflict(
            f"no other node has a usable device for {', '.join(alone[:NAMED])}{more}: their queries would be refused. "
            f"Send force: true to {order} it all the same",
            "force",
        )


def uncordon(node: Node) -> Node:
    with transaction.atomic():
        rows = Node.objects.filter(pk=node.pk).exclude(cordoned_at=None)
        if rows.update(cordoned_at=None, cordoned_until=None):
            events.changed("node", node.name)
    node.refresh_from_db()
    return node


def accept_claim(member: Node | Gateway) -> Node | Gateway:
    """Make the claimant the member, with a credential of its own.

    Raises Conflict: nobody claims the name now, or the claimant's join token has been used up meanwhile.
    """
    with transaction.atomic():
        kind, row = _claimed(member)
        if row.claim_with is None or not use_token(row.claim_with):
            raise Conflict(f"the join token behind the claim on {member.name!r} was deleted or is used up")
        record("accepted a claim", kind, row.name, after=_claim(row))
        row.channel, row.credential_hash, row.joined_with = row.claim_channel, "", row.claim_with
        row.state, row.seen_s = Member.State.APPROVED, row.claim_s
        # The box that was the member so far is no longer among other members' peers.
        row.key_hash, row.certificate_until = "", None
        _end_claim(row)
        row.save()
        events.changed(kind, row.name)
    return row


def refuse_claim(member: Node | Gateway) -> Node | Gateway:
    """Turn the claimant away. Raises Conflict: nobody claims the name now."""
    with transaction.atomic():
        kind, row = _claimed(member)
        record("refused a claim", kind, row.name, after=_claim(row))
        _end_claim(row)
        row.save(update_fields=["claim_channel", "claimed_at", "claim_s"])
        events.changed(kind, row.name)
    return row


def _claimed(member: Node | Gateway) -> tuple[str, Node | Gateway]:
    kind, row = member.word, type(member).objects.select_for_update().filter(pk=member.pk).first()
    if row is None or not row.claimed:
        raise Conflict(f"nobody claims the name of {kind} {member.name!r} now")
    return kind, row


def _claim(row: Node | Gateway) -> dict[str, str]:
    token = row.claim_with.name if row.claim_with is not None else "(deleted)"
    return {"join_token": token, "address": row.claim_address}


def _end_claim(row: Node | Gateway) -> None:
    row.claim_channel, row.claimed_at, row.claim_s = "", None, None


def lapse(member: Node | Gateway) -> bool:
    """Mark a member's certificate as lapsed; whether that is new."""
    with transaction.atomic():
        rows = type(member).objects.filter(pk=member.pk, certificate_lapsed=False)
        if not rows.filter(certificate_until=member.certificate_until).update(certificate_lapsed=True):
            return False
        until = member.certificate_until.isoformat(timespec="seconds")
        record("certificate ended", member.word, member.name, after={"until": until})
        events.changed(member.word, member.name)
    return True


def replace_authority() -> None:
    """Make the next authority of members' certificates, which get them in seconds.

    Raises Conflict: some have not renewed since the last time, and would be cut off; CertificateError.
    """
    with transaction.atomic():
        before = authority.locked()
        late = [
            name
            for kind in (Node, Gateway)
            for name in kind.objects.filter(state=Member.State.APPROVED, certificate_lapsed=False)
            .exclude(key_hash="")
            .exclude(certificate_issuer=before.key_hash)
            .values_list("name", flat=True)
        ]
        if late:
            raise Conflict(
                f"{', '.join(late)}: still with a certificate of the authority before; members renew within a minute "
                "once they are connected. Wait for them, or revoke them"
            )
        authority.replace(before)


def use_token(token: JoinToken) -> bool:
    """Count a use of a join token; whether there was one left."""
    left = models.Q(uses=None) | models.Q(used__lt=models.F("uses"))
    return bool(JoinToken.objects.filter(left, pk=token.pk).update(used=models.F("used") + 1))


def delete_member(member: Node | Gateway) -> None:
    """Forget a node (with its devices) or gateway. Raises Conflict: it is connected."""
    with transaction.atomic():
        current = type(member).objects.select_for_update().filter(pk=member.pk).first()
        if current is not None and not current.connected:
            current.delete()
        elif current is not None:
            raise Conflict(f"{member.word} {member.name!r} is connected; stop it or revoke it first")
        events.changed(member.word, member.name)


def forget_device(device: Device) -> None:
    with transaction.atomic():
        if not Device.objects.filter(pk=device.pk, detail=Device.GONE).delete()[0]:
            raise Conflict(f"device {device.ref!r} belongs to node {device.node.name!r}, which still has it")
        record("deleted", "device", device.ref, before={"type": device.type})
        events.changed("node", device.node.name)


def create_api_key(name: str, **limits: Any) -> tuple[ApiKey, str]:
    """Create a key for queries; it is kept nowhere. Raises Conflict: name taken."""
    key = new_secret("api_key")
    return _create(ApiKey(name=name, prefix=key[:8], key_hash=hash_secret(key), **limits), "api_key"), key


def change_api_key(row: ApiKey, limits: dict[str, Any]) -> ApiKey:
    with transaction.atomic():
        if limits and ApiKey.objects.filter(pk=row.pk).update(**limits):
            events.changed("api_key", row.name)
    row.refresh_from_db()
    return row


def create_api_token(name: str, user: Any, role: str, expires: datetime | None = None) -> tuple[ApiToken, str]:
    token = new_secret("api_token")
    row = ApiToken(name=name, user=user, role=role, expires=expires, prefix=token[:8], token_hash=hash_secret(token))
    return _create(row, "api_token"), token


def create_join_token(name: str, **limits: Any) -> tuple[JoinToken, str]:
    token = new_secret("join_token")
    return _create(JoinToken(name=name, token_hash=hash_secret(token), **limits), "join_token"), token


def _create(row: models.Model, kind: str):
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            events.changed(kind, row.name)
    except IntegrityError:
        raise Conflict(f"the name {row.name!r} is taken", "name") from None
    return row


def delete_secret(row: ApiKey | ApiToken | JoinToken) -> None:
    """Take a key or token away; what it let in before stays."""
    with transaction.atomic():
        row.delete()
        events.changed(row._meta.verbose_name.lower().replace(" ", "_"), row.name)


def node_by_credential(credential: str) -> Node | None:
    if not credential:
        return None
    return Node.objects.filter(credential_hash=hash_secret(credential), state=Node.State.APPROVED).first()
