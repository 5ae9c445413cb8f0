"""Requests for a plan: one task waits for all, and reads the state when it starts.

How long something holds is kept as a steady moment in the value: Redis' own times to live follow the wall clock, and a
step back by hours would hold requests off for hours.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db import transaction

from registry import clock
from registry.text import storable
from scheduler import live, queue
from scheduler.control import superseded
from scheduler.models import MOST_DETAIL, Plan
from scheduler.telemetry import LARGEST_RATE

WAITING = live.key("plan_waiting")
#: a request that was lost with its worker must not block later ones for longer
WAITING_EXPIRES_S = 15
#: by trigger, details of requests that no plan served yet, the oldest first
CAUSES = live.key("plan_causes:")
#: triggers of requests, of which a plan that serves several has the first
RANKED = (Plan.Trigger.MANUAL, Plan.Trigger.CHANGE, Plan.Trigger.BURST, Plan.Trigger.OVERLOAD)
#: causes kept for each trigger, so that bursts push out no others
MOST_CAUSES = 5
PAUSED = live.key("plan_pause:")
#: by application, the rate that a burst reported, and when
OBSERVED = live.key("burst_rates")
#: a reported rate counts until the per-second statistics, which come later, show it themselves
OBSERVED_FOR_S = 4


class Served(NamedTuple):
    """Rates and causes of the requests that a plan serves.

    Attributes:
        rates: reported by bursts recently, also to plans with another trigger: one made right after a burst's would
            otherwise undo it. Items/s by application.
        causes: (trigger, detail) of each request, ordered as :data:`RANKED`, then the oldest first.
    """

    rates: dict[str, float]
    causes: list[tuple[str, str]]


def _claim(key: str, seconds: float) -> bool:
    """Whether nobody else claimed this within the last ``seconds``.

    Two that come at once may both get it.
    """
    redis, now = live.client(), clock.stamp()
    if redis.set(key, now, nx=True):
        return True
    if clock.age(redis.get(key)) < seconds:
        return False
    redis.set(key, now)
    return True


def request_plan(trigger: str, detail: str = "", at_most_every_s: int = 0) -> bool:
    """Request a plan; False if one already waits or was requested too recently.

    The waiting plan uses the same state and names this cause, too. Called inside a transaction, the request is made
    once that is committed.
    """
    if at_most_every_s and not _claim(PAUSED + trigger, at_most_every_s):
        return False
    if transaction.get_connection().in_atomic_block:
        # Nothing may wait for a request that a rollback takes back.
        transaction.on_commit(lambda: request_plan(trigger, detail))
        return True
    detail = storable(detail, MOST_DETAIL)
    # Push before the claim: a plan that starts after a refused claim then reads the cause.
    with live.client().pipeline() as pipe:
        pipe.rpush(CAUSES + trigger, detail).ltrim(CAUSES + trigger, -MOST_CAUSES, -1).execute()
    if not _claim(WAITING, WAITING_EXPIRES_S):
        return False
    queue.send("scheduler.plan", trigger=trigger, detail=detail, ticket=superseded.ticket())
    return True


def started() -> Served:
    """Note that the waiting request is being served: later ones queue again.

    Returns:
        Rates and causes; the causes stay until :func:`served`, for the plan that follows one that failed.
    """
    redis = live.client()
    with redis.pipeline() as pipe:
        pipe.delete(WAITING)
        for trigger in RANKED:
            pipe.lrange(CAUSES + trigger, 0, -1)
        _, *details = pipe.execute()
    rates, over = {}, []
    for application, value in redis.hgetall(OBSERVED).items():
        rate, _, at = value.partition(" ")
        if clock.age(at) < OBSERVED_FOR_S:
            rates[application] = float(rate)
        else:
            over.append(application)
    if over:
        redis.hdel(OBSERVED, *over)
    causes = [(trigger, one) for trigger, some in zip(RANKED, details, strict=True) for one in some]
    return Served(rates, causes)


def served(causes: list[tuple[str, str]]) -> None:
    """Forget causes: their plan is made."""
    with live.client().pipeline() as pipe:
        for trigger, detail in causes:
            pipe.lrem(CAUSES + trigger, 1, detail)
        pipe.execute()


def cause(trigger: str, detail: str, causes: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the trigger and the detail of a plan that serves requests beside its own.

    Args:
        trigger: of the task that makes the plan.
        detail: of that task.
        causes: of the requests, as :attr:`Served.causes`.
    """
    places = {one: place for place, one in enumerate(RANKED)}
    ranked = sorted([(trigger, detail), *causes], key=lambda one: places.get(one[0], len(places)))
    details = dict.fromkeys(text for _, text in ranked if text)
    return str(ranked[0][0]), "; ".join(details)[:MOST_DETAIL]


def burst(application: str, rate: float, version: int) -> bool:
    """A gateway's demand left its plan's band; False also for a rate that cannot be."""
    if not 0 <= rate <= LARGEST_RATE:
        return False
    live.client().hset(OBSERVED, application, f"{rate} {clock.stamp()}")
    return request_plan("burst", f"{application} at {rate:.1f} items/s left the band of plan {version}")
