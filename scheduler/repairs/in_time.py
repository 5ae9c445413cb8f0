"""The sentence where no repair needs anybody: it must not deny what figures show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scheduler import words
from scheduler.repairs.checks.planning import OVER_SHARE, RAISED_SHARE
from scheduler.repairs.facts import LONG_S, MINUTE_S, MOMENT_S, Facts, RecentQueries


@dataclass(frozen=True)
class InTime:
    """How applications answer; ``late``: one misses the goal now or did recently."""

    sentence: str
    late: bool = False


def in_time(facts: Facts) -> InTime:
    names = [application.name for application in facts.applications]
    if not names:
        return InTime("No application is served yet.")
    shares = {name: _share(facts, name) for name in names}
    late = sorted((name for name, (_, _, missed) in shares.items() if missed), key=lambda name: -shares[name][0])
    if late:
        share, window, _ = shares[late[0]]
        others = f", and {words.several(len(late) - 1, 'more application')} missed it, too" if late[1:] else ""
        return InTime(
            f"{late[0]} answered {_answered(share)}% in time in {window}; the goal is 99%{others}. If this lasts, "
            "it becomes a repair with a remedy.",
            late=True,
        )
    busy = [name for name in names if facts.long.get(name, facts.recent.get(name, RecentQueries())).arrived]
    minutes = LONG_S // MINUTE_S
    if not busy:
        return InTime(f"No queries came in the last {minutes} minutes.")
    who = busy[0] if len(busy) == 1 else f"All {len(busy)} applications with queries"
    return InTime(f"{who} answered at least 99% in time in the last {minutes} minutes.")


def _answered(violations: float) -> str:
    """Percent in time, rounded down: 98.97 that missed 99 is not shown as 99."""
    return f"{math.floor(round((1 - violations) * 1000, 3)) / 10:g}"


def _share(facts: Facts, name: str) -> tuple[float, str, bool]:
    recent = facts.recent.get(name, RecentQueries())
    long = facts.long.get(name, recent)
    return max(
        (recent.worst, f"the worst {MOMENT_S} s of the last minute", recent.worst > RAISED_SHARE),
        (recent.share, "the last minute", recent.share > OVER_SHARE),
        (long.share, f"the last {LONG_S // MINUTE_S} minutes", long.share > OVER_SHARE),
        key=lambda one: (one[2], one[0]),
    )
