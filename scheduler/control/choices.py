"""What can be switched while the appliance runs: the allocation strategy and the routing.

The environment says what holds by default (``NEREUS_STRATEGY``, ``NEREUS_ROUTING``); what an operator chooses is kept
in the database, holds from the next plan on, and survives restarts until it is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from django.conf import settings
from django.db import transaction

from registry.faults import Fault, InvalidInput
from scheduler import live
from scheduler.allocation import strategies
from scheduler.control.requests import request_plan
from scheduler.models import Choice
from workers import log
from workers.gateway import routing

logger = log.get("choices")


@dataclass(frozen=True)
class Choices:
    """Names of the strategy that makes the next plan and of the routing that it will travel with."""

    strategy: str
    routing: str


def allowed() -> dict[str, Sequence[str]]:
    """The names that each setting may have."""
    return {"strategy": list(strategies.names()), "routing": list(routing.names())}


def defaults() -> Choices:
    """What the environment says."""
    return Choices(settings.NEREUS.strategy, settings.NEREUS.routing)


def chosen() -> dict[str, str]:
    """What operators chose, by setting; choices that this version does not know are left out."""
    names = allowed()
    found = {}
    for row in Choice.objects.filter(setting__in=names):
        if row.value in names[row.setting]:
            found[row.setting] = row.value
        else:
            logger.warning("choice_unknown", setting=row.setting, value=row.value)
    return found


def current() -> Choices:
    """What the next plan is made with."""
    return Choices(**{**asdict(defaults()), **chosen()})


def change(wanted: Mapping[str, str | None], by: str) -> Choices:
    """Choose some of the settings; None or an empty name takes a choice back. Asks for a plan where that changes
    anything.

    Args:
        by: who, for the plan's reason.

    Raises:
        InvalidInput: a name that is not known; nothing is changed then.
    """
    names = allowed()
    faults = [
        Fault(setting, f"{value!r} is not one of {', '.join(names[setting])}")
        for setting, value in wanted.items()
        if value and value not in names[setting]
    ]
    if faults:
        raise InvalidInput(faults)
    with transaction.atomic():
        before = current()
        for setting, value in wanted.items():
            if value:
                Choice.objects.update_or_create(setting=setting, defaults={"value": value})
            else:
                Choice.objects.filter(setting=setting).delete()
        after = current()
        if after != before:
            changes = [
                f"{setting} {old} → {new}"
                for (setting, old), new in zip(asdict(before).items(), asdict(after).values(), strict=True)
                if old != new
            ]
            logger.info("control_changed", changes=changes, by=by)
            # What is stored holds from the next plan on, even if this one cannot be asked for now.
            transaction.on_commit(lambda: request_plan("change", f"{', '.join(changes)}, by {by}"), robust=True)
            transaction.on_commit(lambda: live.publish("changed", {"kind": "control", "ref": ""}), robust=True)
    return after
