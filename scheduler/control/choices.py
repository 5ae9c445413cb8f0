"""The stack of the next plan: the operators' choice, else ``NEREUS_STACK``.

An operator's choice is kept in the database, holds from the next plan on, and survives restarts until it is taken back.
"""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from registry.errors import invalid
from scheduler import live
from scheduler.control.requests import request_plan
from scheduler.models import Choice
from workers import log
from workers.dispatch import stacks

logger = log.get("choices")

SETTING = "stack"


def default() -> str:
    return settings.NEREUS.stack


def chosen() -> str | None:
    """The stack that operators chose; None: none, or one that no cluster can serve with (any more)."""
    row = Choice.objects.filter(setting=SETTING).first()
    if row is None:
        return None
    if row.value in stacks.LIVE:
        return row.value
    logger.warning("stack_not_live", chosen=row.value, used=default(), stacks=list(stacks.LIVE))
    return None


def current() -> stacks.Stack:
    return stacks.STACKS[chosen() or default()]


def change(stack: str | None, by: str) -> stacks.Stack:
    """Choose a stack; None or an empty name goes back to the default.

    Requests a plan where that changes anything.

    Args:
        by: the operator's name, for the plan's reason.

    Raises:
        InvalidInput: an unknown name; nothing is changed then.
    """
    if stack and stack not in stacks.LIVE:
        raise invalid(SETTING, f"{stack!r} is not one of {', '.join(stacks.LIVE)}")
    with transaction.atomic():
        before = current()
        if stack:
            Choice.objects.update_or_create(setting=SETTING, defaults={"value": stack})
        else:
            Choice.objects.filter(setting=SETTING).delete()
        after = current()
        if after != before:
            logger.info("control_changed", stack=after.name, before=before.name, by=by)
            reason = f"stack {before.name} → {after.name}, by {by}"
            # The choice is stored and holds from the next plan on, even if this one cannot be requested now.
            transaction.on_commit(lambda: request_plan("change", reason), robust=True)
            transaction.on_commit(lambda: live.publish("changed", {"kind": "control", "ref": ""}), robust=True)
    return after
