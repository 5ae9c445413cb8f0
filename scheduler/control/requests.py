"""Requests for a plan: one task waits for all of them, and reads the state when it starts."""

from __future__ import annotations

from django.db import transaction

from scheduler import live, queue

WAITING = "nereus:plan_waiting"
#: a request that was lost with its worker must not block later ones for longer
WAITING_EXPIRES_S = 15
OBSERVED = "nereus:burst_rates:"
#: a reported rate counts until the per-second statistics, which come later, show it themselves
OBSERVED_FOR_S = 4


def request_plan(trigger: str, detail: str = "", at_most_every_s: int = 0) -> bool:
    """Request a plan; False if one already waits (it will use the same state) or was requested too recently.

    Called inside a transaction, the request is made once that is committed.
    """
    if at_most_every_s and not live.client().set(f"nereus:plan_pause:{trigger}", 1, nx=True, ex=at_most_every_s):
        return False
    if transaction.get_connection().in_atomic_block:
        # Nothing may wait for a request that a rollback takes back.
        transaction.on_commit(lambda: request_plan(trigger, detail))
        return True
    if not live.client().set(WAITING, trigger, nx=True, ex=WAITING_EXPIRES_S):
        return False
    queue.send("scheduler.plan", trigger=trigger, detail=detail[:300])
    return True


def started() -> dict[str, float]:
    """The waiting request is being served: later ones queue again. Returns rates that bursts reported lately, also to
    plans with another trigger: one made right after a burst's would otherwise undo it."""
    redis = live.client()
    redis.delete(WAITING)
    keys = list(redis.scan_iter(OBSERVED + "*"))
    rates = redis.mget(keys) if keys else []
    return {key.removeprefix(OBSERVED): float(rate) for key, rate in zip(keys, rates, strict=True) if rate is not None}


def burst(application: str, rate: float, version: int) -> bool:
    """A gateway's demand left its plan's band."""
    live.client().set(OBSERVED + application, rate, ex=OBSERVED_FOR_S)
    return request_plan("burst", f"{application} at {rate:.1f} items/s left the band of plan {version}")
