"""Outcome of the latest attempt to make a plan.

The planning worker writes it, the console reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from redis import RedisError

from registry import clock
from scheduler import live

OUTCOME = live.key("plan_outcome")
#: characters of an error that are kept
LONGEST = 500


@dataclass(frozen=True)
class PlanningOutcome:
    """Outcome of the latest attempt to make a plan.

    Attributes:
        age_s: seconds since the attempt ended; infinite where that is not known.
        error: empty where a plan was made, or there was nothing to plan.
        failing_since: the first of the failures in a row.
    """

    age_s: float = math.inf
    error: str = ""
    failing_since: datetime | None = None


@contextmanager
def recorded() -> Iterator[None]:
    """Record how planning inside the block ends; its error passes through.

    A plan counts though Redis fails.
    """
    try:
        yield
    except Exception as error:
        with suppress(RedisError):
            _failed(error)
        raise
    with suppress(RedisError):
        _write({"at": clock.stamp()})


def _failed(error: Exception) -> None:
    before = latest()
    since = before.failing_since.timestamp() if before.failing_since else clock.wall()
    _write({"at": clock.stamp(), "error": f"{type(error).__name__}: {error}"[:LONGEST], "since": since})


def latest() -> PlanningOutcome:
    """The latest attempt's outcome."""
    text = live.client().get(OUTCOME)
    if text is None:
        return PlanningOutcome()
    found = json.loads(text)
    since = found.get("since")
    return PlanningOutcome(
        clock.age(found["at"]), found.get("error", ""), datetime.fromtimestamp(since, UTC) if since else None
    )


def _write(outcome: dict) -> None:
    live.client().set(OUTCOME, live.dumps(outcome))
