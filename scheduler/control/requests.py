"""Asking for a plan. Many may ask at once; one task waits, and what it plans for is read when it starts."""

from __future__ import annotations

from django.db import transaction

from scheduler import live

WAITING = "nereus:plan_waiting"
#: a request that was lost with its worker must not block later ones for longer
WAITING_EXPIRES_S = 15
OBSERVED = "nereus:burst_rates"


def request_plan(trigger: str, detail: str = "", at_most_every_s: int = 0) -> bool:
    """Ask for a plan; False when one already waits (it will see the same state) or was asked for too recently.

    Called inside a transaction, the request is made once that is committed.
    """
    if at_most_every_s and not live.client().set(f"nereus:plan_pause:{trigger}", 1, nx=True, ex=at_most_every_s):
        return False
    if not live.client().set(WAITING, trigger, nx=True, ex=WAITING_EXPIRES_S):
        return False
    from scheduler.tasks import plan

    transaction.on_commit(lambda: plan.apply_async(kwargs={"trigger": trigger, "detail": detail[:300]}))
    return True


def started() -> dict[str, float]:
    """The waiting request is being served: later ones wait anew. Returns rates that bursts reported meanwhile."""
    pipe = live.client().pipeline()
    pipe.delete(WAITING)
    pipe.hgetall(OBSERVED)
    pipe.delete(OBSERVED)
    _, observed, _ = pipe.execute()
    return {name: float(rate) for name, rate in observed.items()}


def burst(application: str, rate: float, version: int) -> bool:
    """A gateway's demand left its plan's band."""
    live.client().hset(OBSERVED, application, rate)
    live.client().expire(OBSERVED, 5)
    return request_plan("burst", f"{application} at {rate:.1f} items/s left the band of plan {version}")
