"""The authority of members' certificates: one row of the database.

All control processes share it. It is made when it is first needed, whichever process needs it. Its key admits nobody by
itself: members connect with those alone whose key the control plane lists
(``docs/decisions/18-trust-between-boxes.md``).
"""

from __future__ import annotations

from django.db import models

from registry.audit.recording import record
from workers.trust.authority import Authority

#: the one row's primary key
_ONE = 1


class MembersAuthority(models.Model):
    #: key, certificate and what leads to the authority before, as :class:`workers.trust.authority.Authority`
    pem = models.TextField()
    key_hash = models.CharField(max_length=64)
    made = models.DateTimeField(auto_now_add=True)


class Certified(models.Model):
    #: sha256 of the public key by which other members recognise it; empty: it has no certificate
    key_hash = models.CharField(max_length=64, blank=True, default="", editable=False)
    #: the end of its certificate, and the hash of the key of the authority that issued it
    certificate_until = models.DateTimeField(null=True, blank=True, editable=False)
    certificate_issuer = models.CharField(max_length=64, blank=True, default="", editable=False)
    #: its certificate ended while it was away: other members do not connect with it until it has another one
    certificate_lapsed = models.BooleanField(default=False, editable=False)

    class Meta:
        abstract = True


def locked() -> Authority:
    """The authority, made if there is none yet, for this transaction alone.

    Certificates are issued one after the other. Raises CertificateError: its row is damaged.
    """
    row = MembersAuthority.objects.select_for_update().filter(pk=_ONE).first()
    if row is None:
        made = Authority.make("Nereus members")
        row, new = MembersAuthority.objects.get_or_create(pk=_ONE, defaults=_columns(made))
        if new:
            record("made", "authority", "members", after={"key_hash": made.key_hash})
    return Authority.load(row.pem.encode())


def key_hash() -> str:
    """Tells the present authority from those before; empty: there is none yet."""
    return MembersAuthority.objects.filter(pk=_ONE).values_list("key_hash", flat=True).first() or ""


def replace(before: Authority) -> None:
    """Make the next authority, in the transaction that has ``before`` locked."""
    made = Authority.make("Nereus members", before)
    MembersAuthority.objects.filter(pk=_ONE).update(**_columns(made))
    record("replaced", "authority", "members", {"key_hash": before.key_hash}, {"key_hash": made.key_hash})


def _columns(authority: Authority) -> dict[str, str]:
    return {"pem": authority.pem.decode(), "key_hash": authority.key_hash}
