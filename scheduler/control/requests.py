"""Requests for a plan: one row says what is wanted, what is served, and who plans.

A request counts ``wanted`` up and adds its cause; the first one that waits sends a task. Whoever takes the row's lease
plans for all requests so far (``started``), and notes them as ``served`` once their plan is stored. So no request is
lost with a worker, a queue or Redis: :func:`watch` has another task sent for those that nobody took up.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from django.db import DatabaseError, close_old_connections, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from registry import clock
from registry.text import storable
from scheduler import queue
from scheduler.control import leases
from scheduler.models import MOST_DETAIL, Plan, WorkLease
from scheduler.telemetry import LARGEST_RATE
from workers import log

logger = log.get("requests")

#: triggers of requests, of which a plan that serves several has the first
RANKED = (Plan.Trigger.MANUAL, Plan.Trigger.CHANGE, Plan.Trigger.BURST, Plan.Trigger.OVERLOAD, Plan.Trigger.PERIOD)
#: causes kept for each trigger, so that bursts push out no others
MOST_CAUSES = 5
#: a reported rate counts until the per-second statistics, which come later, show it themselves
OBSERVED_FOR_S = 4
#: characters of an error that are kept
LONGEST_ERROR = 500
#: seconds between two looks for requests that nobody took up
WATCH_EVERY_S = 2.0

_ended = threading.Event()


class Demand(NamedTuple):
    """The requests that a plan serves.

    Attributes:
        number: of the latest of them.
        trigger, detail: the plan's, made of all their causes: ordered as :data:`RANKED`, then the oldest first.
        rates: reported by bursts recently, also to plans with another trigger: one made right after a burst's would
            otherwise undo it. Items/s by application.
    """

    number: int
    trigger: str
    detail: str
    rates: dict[str, float]


def plan_row() -> WorkLease:
    return WorkLease.objects.filter(name=leases.PLAN).first() or WorkLease(name=leases.PLAN)


def request_plan(
    trigger: str, detail: str = "", at_most_every_s: float = 0.0, rates: dict[str, float] | None = None
) -> bool:
    """Request a plan; False if one waits already, or was requested too recently.

    The plan that waits uses the same state and names this cause, too. Within a transaction the request is part of it.
    """
    if at_most_every_s and clock.age(plan_row().requested.get(trigger)) < at_most_every_s:
        return False
    first = note(trigger, detail, rates)
    if first:
        queue.send("scheduler.plan")
    return first


def burst(application: str, rate: float, version: int) -> bool:
    """A gateway's demand left its plan's band; False also for a rate that cannot be."""
    detail = f"{application} at {rate:.1f} items/s left the band of plan {version}"
    return 0 <= rate <= LARGEST_RATE and request_plan("burst", detail, rates={application: rate})


@transaction.atomic
def note(trigger: str, detail: str = "", rates: dict[str, float] | None = None) -> bool:
    """Store a request without sending a task for it; whether no other one waits.

    ``rates``: items/s that applications were observed to get.
    """
    row, now = _locked(), clock.stamp()
    first = not row.waits
    row.wanted += 1
    row.requested[trigger] = now
    causes = [*row.causes, [row.wanted, str(trigger), storable(detail, MOST_DETAIL)]]
    surplus = [cause for cause in causes if cause[1] == trigger][:-MOST_CAUSES]
    row.causes = [cause for cause in causes if cause not in surplus]
    row.rates = _recent(row.rates) | {name: [rate, now] for name, rate in (rates or {}).items()}
    row.save(update_fields=["wanted", "requested", "causes", "rates"])
    return first


def _locked() -> WorkLease:
    return WorkLease.objects.select_for_update().get_or_create(name=leases.PLAN)[0]


def _recent(rates: dict[str, tuple[float, str]]) -> dict[str, tuple[float, str]]:
    return {name: observed for name, observed in rates.items() if clock.age(observed[1]) < OBSERVED_FOR_S}


def demand() -> Demand | None:
    """The requests that whoever plans is to serve; None: a plan has served them."""
    row = plan_row()
    if row.started <= row.served:
        return None
    causes = [cause for cause in row.causes if cause[0] <= row.started]
    ranked = sorted(causes, key=lambda cause: RANKED.index(cause[1]))
    details = dict.fromkeys(detail for _, _, detail in ranked if detail)
    rates = {name: rate for name, (rate, _) in _recent(row.rates).items()}
    trigger = ranked[0][1] if ranked else str(Plan.Trigger.CHANGE)
    return Demand(row.started, trigger, "; ".join(details)[:MOST_DETAIL], rates)


@transaction.atomic
def served(number: int) -> None:
    """The plan for requests up to this one is made, or there was nothing to plan."""
    row = _locked()
    row.served = max(row.served, number)
    row.causes = [cause for cause in row.causes if cause[0] > number]
    row.ended, row.error, row.failing_since = clock.stamp(), "", None
    row.save(update_fields=["served", "causes", "ended", "error", "failing_since"])


@transaction.atomic
def failed(error: Exception) -> None:
    """No plan could be made: the next one serves the same requests, too."""
    row = _locked()
    row.ended, row.error = clock.stamp(), f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
    row.failing_since = row.failing_since or timezone.now()
    row.save(update_fields=["ended", "error", "failing_since"])


def look(watch: leases.LeaseWatch) -> bool:
    """Have a plan made whose worker or task was lost; whether there was one."""
    if not watch.abandoned():
        return False
    logger.warning("plan_abandoned")
    queue.send("scheduler.plan")
    return True


def start_watch() -> None:
    """Look every few seconds, in a thread of a worker that no solve keeps busy."""
    _ended.clear()
    threading.Thread(target=_watch, name="plan-watch", daemon=True).start()


def stop_watch() -> None:
    _ended.set()


def _watch() -> None:
    watch = leases.LeaseWatch(leases.PLAN)
    while not _ended.wait(WATCH_EVERY_S):
        try:
            look(watch)
        except (DatabaseError, RedisError, BrokerError, OSError) as error:
            logger.warning("lease_not_watched", error=str(error))
        finally:
            close_old_connections()
