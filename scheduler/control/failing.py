"""Since when no plan can be made, and why: kept for people until one is made again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis import RedisError

from registry import clock
from scheduler import live

KEY = "nereus:planning_fails"


@contextmanager
def recorded() -> Iterator[None]:
    """Record how planning inside this ends; the error passes through. A plan counts though Redis fails."""
    redis = live.client()
    try:
        yield
    except Exception as error:
        with suppress(RedisError):
            redis.hsetnx(KEY, "since", clock.stamp())
            redis.hset(KEY, "detail", f"{type(error).__name__}: {error}"[:1000])
        raise
    with suppress(RedisError):
        redis.delete(KEY)


def current() -> dict | None:
    """``since`` (unix seconds) and ``detail`` of the failure that lasts; None: the latest plan was made."""
    found = live.client().hgetall(KEY)
    if not found:
        return None
    age = clock.age(found.get("since"))
    # After a boot nobody knows for how long: at least now.
    return {"since": clock.wall() - (age if math.isfinite(age) else 0.0), "detail": found.get("detail", "")}
