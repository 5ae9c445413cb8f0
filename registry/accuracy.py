"""Accuracies normalised by each application's best variant."""

from __future__ import annotations

from collections.abc import Iterable

from registry.models import Application, Variant


def normalized_accuracies(applications: Iterable[Application]) -> dict[int, float]:
    """Accuracies in percent of the best profiled variant's, by variant id.

    An application whose best is 0 or less has nothing to divide by: its best variants count as 100, the others as 0.
    """
    rows = Variant.objects.filter(application__in=list(applications), accuracy__isnull=False).values_list(
        "pk", "application_id", "accuracy", "state"
    )
    rows = list(rows)
    best: dict[int, float] = {}
    for _, application, accuracy, state in rows:
        if state in Variant.PLANNED:
            best[application] = max(accuracy, best.get(application, accuracy))
    return {
        pk: normalized(accuracy, best[application]) if application in best else 100.0
        for pk, application, accuracy, _ in rows
    }


def normalized(accuracy: float, best: float) -> float:
    if best <= 0:
        return 100.0 if accuracy >= best else 0.0
    return min(100.0, max(0.0, 100.0 * accuracy / best))
