"""Versions of plans. None is handed out twice, whatever becomes of the database.

Members order plans by version: one that they hold already would be taken for the plan that it named before. So the
highest one ever given is kept in a file beside the database, which a restored or new database does not take back. A
``+`` behind it says that versions may have been given elsewhere: the database came from another home.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from scheduler.models import Plan
from workers import disk, log

logger = log.get("versions")

FILE = "plan_version"
#: versions that may have been given since a backup was made of another home: a year and a half, a plan each 5 s
ELSEWHERE = 10_000_000


def _path() -> Path:
    return settings.NEREUS.home / FILE


def _read() -> tuple[int, int]:
    try:
        text = _path().read_text().strip()
        return int(text.removesuffix("+") or 0), ELSEWHERE if text.endswith("+") else 0
    except (FileNotFoundError, ValueError):
        return 0, 0


def highest() -> int:
    return _read()[0]


def given_elsewhere() -> None:
    """Note that the database comes from another home, whose members may hold newer plans."""
    disk.write_private(_path(), f"{highest()}+\n".encode())


def next_version() -> int:
    """Reserve a version above all others, on the disk before it is used.

    Only the planning process calls this, and the start before there is one.
    """
    latest = Plan.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    here, elsewhere = _read()
    version = max(latest, here) + elsewhere + 1
    disk.write_private(_path(), f"{version}\n".encode())
    return version


def reissue() -> int | None:
    """Store the newest plan anew under a version above all others, where needed.

    That is where a restored database has older ones only: members would be sent an older version than they hold. Called
    at a start, before anything is sent.

    Returns:
        The version; None: the newest plan has the highest one, or there is none.
    """
    latest = Plan.objects.first()
    here, elsewhere = _read()
    if latest is None or (latest.pk >= here and not elsewhere):
        return None
    version, before = next_version(), latest.pk
    latest.pk = version
    latest.trigger, latest.trigger_detail = Plan.Trigger.CHANGE, f"plan {before} of a restored database"
    if latest.wire:
        latest.wire = {**latest.wire, "version": version}
    latest.save(force_insert=True)
    logger.warning("plan_reissued", version=version, before=before)
    return version
