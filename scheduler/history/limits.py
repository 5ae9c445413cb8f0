"""Bounds of the history: rows by tier, names in use, marks.

Nothing is deleted by its age on the wall clock.
"""

from __future__ import annotations

from scheduler.history.folding import TIERS
from scheduler.history.models import HistoryName, HistoryPosition, HistoryRow, Mark

#: marks that are kept
KEEP_MARKS = 20_000
#: a name that this many folds did not use is in no row
UNUSED_FOLDS = 2 * TIERS[-1].keep * TIERS[-1].resolution // TIERS[0].resolution


def enforce(at_once: int) -> dict[str, int]:
    gone = {f"history_{tier.resolution}s": _beyond(_tier(tier.resolution), tier.keep, at_once) for tier in TIERS}
    gone["marks"] = _beyond(Mark.objects.all(), KEEP_MARKS, at_once)
    folds = HistoryPosition.objects.values_list("folds", flat=True).first() or 0
    unused = HistoryName.objects.filter(used__lt=folds - UNUSED_FOLDS) if folds > UNUSED_FOLDS else None
    gone["history_names"] = unused.delete()[0] if unused is not None else 0
    return gone


def _tier(resolution: int):
    return HistoryRow.objects.filter(resolution=resolution)


def _beyond(rows, keep: int, at_once: int) -> int:
    """Delete rows beyond the newest ``keep`` by when they were made, oldest first."""
    limit = rows.order_by("-pk").values_list("pk", flat=True)[keep : keep + 1].first()
    if limit is None:
        return 0
    oldest = list(rows.filter(pk__lte=limit).order_by("pk").values_list("pk", flat=True)[:at_once])
    return rows.model.objects.filter(pk__in=oldest).delete()[0]
