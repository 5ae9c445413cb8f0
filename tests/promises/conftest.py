"""A registered cluster that serves by a plan, with gateways' reports."""

from __future__ import annotations

import pytest

from registry.models import Node
from scheduler.control.planner import make_plan
from scheduler.promises import windows
from tests.control import world
from tests.control.world import application, listening, node, seen, variant
from workers.protocol.specs import ApplicationStats


def report(second: float, queries: int = 20, in_time: int | None = None, accuracy: float = 100.0) -> None:
    """Record a gateway's second that ended ``second`` seconds ago (negative: it will have ended)."""
    good = queries if in_time is None else in_time
    counts = ApplicationStats(
        arrived=queries,
        arrived_rows=queries,
        in_time=good,
        late=queries - good,
        accuracy_sum=good * accuracy,
        normalized_sum=good * accuracy,
    )
    world.second({"digits": counts}, second)


@pytest.fixture
def cluster(clean_redis, transactional_db, monkeypatch):
    # As few windows as can be, of a few seconds: how long they take must not matter here.
    monkeypatch.setattr(windows, "MOST_ITEMS", 0)
    monkeypatch.setattr(windows, "ITEMS", 4_000)
    listening(clean_redis)
    made = {"left": node("left"), "right": node("right"), "application": application()}
    made |= {
        "quick": variant(made["application"], "quick", 90, 5),
        "good": variant(made["application"], "good", 99, 40),
    }
    for ago in range(60, 0, -1):
        report(ago)
    Node.objects.update(**seen(-50))
    made["plan"] = make_plan("manual")
    return made
