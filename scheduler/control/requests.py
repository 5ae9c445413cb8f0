"""Requests for a plan: one task waits for all, and reads the state when it starts.

How long something holds is kept as a steady moment in the value: Redis' own times to live follow the wall clock, and a
step back by hours would hold requests off for hours.
"""

from __future__ import annotations

from django.db import transaction

from registry import clock
from registry.text import storable
from scheduler import live, queue
from scheduler.control import superseded
from scheduler.telemetry import LARGEST_RATE

WAITING = live.key("plan_waiting")
#: a request that was lost with its worker must not block later ones for longer
WAITING_EXPIRES_S = 15
PAUSED = live.key("plan_pause:")
#: by application, the rate that a burst reported, and when
OBSERVED = live.key("burst_rates")
#: a reported rate counts until the per-second statistics, which come later, show it themselves
OBSERVED_FOR_S = 4


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

    One that waits will use the same state. Called inside a transaction, the request is made once that is committed.
    """
    if at_most_every_s and not _claim(PAUSED + trigger, at_most_every_s):
        return False
    if transaction.get_connection().in_atomic_block:
        # Nothing may wait for a request that a rollback takes back.
        transaction.on_commit(lambda: request_plan(trigger, detail))
        return True
    if not _claim(WAITING, WAITING_EXPIRES_S):
        return False
    queue.send("scheduler.plan", trigger=trigger, detail=storable(detail, 300), ticket=superseded.ticket())
    return True


def started() -> dict[str, float]:
    """Note that the waiting request is being served: later ones queue again.

    Returns:
        Rates that bursts reported recently, also to plans with another trigger: one made right after a burst's would
        otherwise undo it.
    """
    redis = live.client()
    redis.delete(WAITING)
    rates, over = {}, []
    for application, value in redis.hgetall(OBSERVED).items():
        rate, _, at = value.partition(" ")
        if clock.age(at) < OBSERVED_FOR_S:
            rates[application] = float(rate)
        else:
            over.append(application)
    if over:
        redis.hdel(OBSERVED, *over)
    return rates


def burst(application: str, rate: float, version: int) -> bool:
    """A gateway's demand left its plan's band; False also for a rate that cannot be."""
    if not 0 <= rate <= LARGEST_RATE:
        return False
    live.client().hset(OBSERVED, application, f"{rate} {clock.stamp()}")
    return request_plan("burst", f"{application} at {rate:.1f} items/s left the band of plan {version}")
