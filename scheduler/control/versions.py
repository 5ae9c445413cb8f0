"""Versions of plans. None is handed out twice, whatever becomes of the database.

Members order plans by version: one that they hold already would be taken for the plan that it named before. So the
highest one ever given is kept in a file beside the database, which a restored or new database does not take back.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from scheduler.models import Plan
from workers import disk

FILE = "plan_version"


def _path() -> Path:
    return settings.NEREUS.home / FILE


def highest() -> int:
    """The highest version given by this appliance; 0: none."""
    try:
        return int(_path().read_text())
    except (FileNotFoundError, ValueError):
        return 0


def next_version() -> int:
    """A version above all others, on the disk before it is used. Only the planning process calls this."""
    latest = Plan.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    version = max(latest, highest()) + 1
    disk.write_private(_path(), f"{version}\n".encode())
    return version
