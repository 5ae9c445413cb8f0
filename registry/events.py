"""The registry's change events for the rest of the control plane.

Kinds and their refs: ``application`` NAME, ``variant`` APPLICATION/VARIANT, ``validation_set`` APPLICATION, ``node``
NAME, ``gateway`` NAME, ``api_key`` NAME, ``api_token`` NAME, ``join_token`` NAME, ``profile_job`` ID, ``webhook``
NAME. The ref may no longer exist when the signal arrives: being deleted is a change too.
"""

from __future__ import annotations

from django.db import transaction
from django.dispatch import Signal

#: sent with ``kind``, ``ref`` and ``replan`` once the change is committed
registry_changed = Signal()


def changed(kind: str, ref: str, replan: bool = True) -> None:
    """Announce a change when the current transaction commits.

    It is safe by then: a receiver that fails is logged and does not fail the caller. ``replan``: False where
    no plan could be another for it.
    """
    # send_robust logs the failures itself.
    transaction.on_commit(lambda: registry_changed.send_robust(sender=None, kind=kind, ref=ref, replan=replan))
