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
from scheduler.telemetry import LARGEST_RATE

WAITING = live.key("plan_waiting")
#: a request that was lost with its worker must not block later ones for longer
WAITING_EXPIRES_S = 15
#: TRIGGER, a tab and the detail of requests that no plan served yet, the oldest first
REASONS = live.key("plan_reasons")
#: reasons that are kept: a plan's detail has 300 characters
MOST_REASONS = 20
PAUSED = live.key("plan_pause:")
#: by application, the rate that a burst reported, and when
OBSERVED = live.key("burst_rates")
#: a reported rate counts until the per-second statistics, which come later, show it themselves
OBSERVED_FOR_S = 4


class Served(NamedTuple):
    """What the requests say that a plan serves.

    Attributes:
        rates: reported by bursts recently, also to plans with another trigger: one made right after a burst's would
            otherwise undo it. Items/s by application.
        reasons: (trigger, detail) of each request, the oldest first.
    """

    rates: dict[str, float]
    reasons: list[tuple[str, str]]


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

    One that waits will use the same state, and has this request's reason, too. Called inside a transaction, the request
    is made once that is committed.
    """
    if at_most_every_s and not _claim(PAUSED + trigger, at_most_every_s):
        return False
    if transaction.get_connection().in_atomic_block:
        # Nothing may wait for a request that a rollback takes back.
        transaction.on_commit(lambda: request_plan(trigger, detail))
        return True
    detail = storable(detail, 300)
    # Before the claim: the plan that a refused one leaves to others begins after this.
    with live.client().pipeline() as pipe:
        pipe.rpush(REASONS, f"{trigger}\t{detail}").ltrim(REASONS, -MOST_REASONS, -1).execute()
    if not _claim(WAITING, WAITING_EXPIRES_S):
        return False
    queue.send("scheduler.plan", trigger=trigger, detail=detail, ticket=superseded.ticket())
    return True


def started() -> Served:
    """Note that the waiting request is being served: later ones queue again."""
    redis = live.client()
    with redis.pipeline() as pipe:
        _, reasons, _ = pipe.delete(WAITING).lrange(REASONS, 0, -1).delete(REASONS).execute()
    rates, over = {}, []
    for application, value in redis.hgetall(OBSERVED).items():
        rate, _, at = value.partition(" ")
        if clock.age(at) < OBSERVED_FOR_S:
            rates[application] = float(rate)
        else:
            over.append(application)
    if over:
        redis.hdel(OBSERVED, *over)
    return Served(rates, [(trigger, detail) for trigger, _, detail in (reason.partition("\t") for reason in reasons)])


def burst(application: str, rate: float, version: int) -> bool:
    """A gateway's demand left its plan's band; False also for a rate that cannot be."""
    if not 0 <= rate <= LARGEST_RATE:
        return False
    live.client().hset(OBSERVED, application, f"{rate} {clock.stamp()}")
    return request_plan("burst", f"{application} at {rate:.1f} items/s left the band of plan {version}")
