"""Celery's entry points: parse, call, log. Tasks take ids and tolerate missing rows."""

from __future__ import annotations

from contextlib import suppress

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import DatabaseError

from workers import log
from workers.confinement.limits import lower_priority

logger = log.get("tasks")

#: nice value of simulations, which take what all else leaves
SIMULATION_NICE = 10


@shared_task(name="scheduler.plan")
def plan(trigger: str = "", detail: str = "") -> None:
    """Solve and push a plan for all requests that wait; runs on the planning queue.

    A lease makes it one solve at a time, however many workers take from that queue.

    Args:
        trigger, detail: of a request that is not stored yet.
    """
    from scheduler import live, plans, trail, webhooks
    from scheduler.control import leases, planner, requests
    from scheduler.history import marking

    if trigger:
        requests.note(trigger, detail)
    with leases.held(leases.PLAN) as lease:
        demand = requests.demand()
        if demand is None:
            logger.info("plan_superseded", trigger=trigger, detail=detail)
            return
        try:
            made = planner.make_plan(demand.trigger, demand.detail, demand.rates, lease)
        except leases.LeaseLost as error:
            # Its successor plans from a later state.
            logger.error("plan_dropped", trigger=demand.trigger, reason=str(error))
            return
        except Exception as error:
            with suppress(DatabaseError):
                requests.failed(error)
            raise
        requests.served(demand.number)
    if made is not None:
        live.members_changed()
        marking.planned(made)
        live.publish("plan", plans.event(made))
        if made.changed:
            webhooks.announce("plan", lambda: trail.webhook_event(made))


@shared_task(name="scheduler.dispatch_profiles")
def dispatch_profiles() -> None:
    from scheduler.profiling.dispatch import dispatch

    dispatch()


@shared_task(name="scheduler.webhook")
def webhook(pk: int, text: str, attempt: int = 0) -> None:
    from scheduler import webhooks

    webhooks.hand_over(pk, text, attempt)


@shared_task(name="scheduler.history")
def history() -> None:
    """Record what the statistics in Redis have beyond the history; it needs no lease."""
    from scheduler.history import recording

    recording.record()


@shared_task(name="scheduler.tend")
def tend() -> None:
    """Lost jobs, finished drains, silent devices, files and rows that nothing needs."""
    from scheduler.control import leases

    with leases.held(leases.TEND, wait_s=leases.TTL_S + 1.0) as lease:
        if lease is None:
            logger.info("upkeep_under_way", at="another process")
            return
        _tend()


def _tend() -> None:
    from registry import profiling, storage
    from registry.audit import recording as audit
    from registry.services import finish_drains
    from scheduler import retention
    from scheduler.control import redivision, upkeep
    from scheduler.history import marking
    from scheduler.members import reaching
    from scheduler.profiling.dispatch import dispatch, requeue_silent
    from scheduler.promises import keeping
    from scheduler.repairs import listing

    for step in (
        upkeep.write_off_silent_devices,
        upkeep.lapse_ended_certificates,
        upkeep.end_cordons,
        finish_drains,
        requeue_silent,
        profiling.end_orphaned,
        dispatch,
        reaching.judge,
        redivision.advance,
        upkeep.replan_if_devices_changed,
        storage.sweep,
        retention.enforce,
        audit.prune,
        listing.watch,
        keeping.compare,
        marking.watch_members,
    ):
        try:
            step()
        except Exception:
            # The others must not wait until this one works again.
            logger.exception("upkeep_failed", step=step.__name__)


@shared_task(name="scheduler.promise")
def promise() -> None:
    """Make one; runs on the simulation queue."""
    from scheduler.promises import keeping, what_if
    from scheduler.promises.present import NothingToPromise
    from scheduler.simulation import SimulationError

    what_if.give_up_lost()
    try:
        keeping.promise_now(lambda _: what_if.plan_waiting())
    except (NothingToPromise, SimulationError) as error:
        logger.info("no_promise", reason=str(error))
    what_if.work()


@shared_task(name="scheduler.what_if")
def what_if() -> None:
    """Answer the what-ifs that wait. Runs on the simulation queue."""
    from scheduler.promises import what_if

    what_if.work()


@worker_ready.connect
def _watch(sender, **_) -> None:
    """Set up what a worker of certain queues does when it has started.

    The worker of the queue that is never busy for long looks after those that plan. The one that simulates stands back
    behind all others, now that it has started.
    """
    from scheduler.control import requests

    queues = sender.app.amqp.queues.consume_from
    if "control" in queues:
        requests.start_watch()
    if "simulation" in queues:
        lower_priority(SIMULATION_NICE)
        _resume_what_ifs()


def _resume_what_ifs() -> None:
    from scheduler.promises import what_if

    try:
        what_if.resume()
    except Exception:
        # The periodic promise answers what waits, and gives up what is lost.
        logger.exception("what_ifs_not_resumed")


@worker_shutting_down.connect
def _unwatch(**_) -> None:
    from scheduler.control import requests

    requests.stop_watch()
