"""Celery's entry points: parse, call, log. Tasks take ids and tolerate missing rows."""

from __future__ import annotations

from celery import shared_task

from workers import log

logger = log.get("tasks")


@shared_task(name="scheduler.plan")
def plan(trigger: str, detail: str = "", ticket: int | None = None) -> None:
    """Solve and push a plan, unless one that started after the request is made already (``ticket``: its number).

    Runs on the planning queue, whose one worker makes it one solve at a time.
    """
    from scheduler import live
    from scheduler.control import outcome, planner, requests, superseded
    from scheduler.members import push

    if ticket is not None and superseded.superseded(ticket):
        logger.info("plan_superseded", trigger=trigger, detail=detail)
        return
    number = superseded.start()
    observed = requests.started()
    with outcome.recorded():
        made = planner.make_plan(trigger, detail, observed)
    superseded.finish(number)
    if made is not None:
        push.push_all()
        live.publish("plan", planner.summary(made))


@shared_task(name="scheduler.dispatch_profiles")
def dispatch_profiles() -> None:
    """Hand queued profile jobs to free devices."""
    from scheduler.profiling.dispatch import dispatch

    dispatch()


@shared_task(name="scheduler.push")
def push_configs() -> None:
    """Send every member its configuration; for changes that need no new plan (a key, an SLO)."""
    from scheduler.members import push

    push.push_all()


@shared_task(name="scheduler.tend")
def tend() -> None:
    """Periodic upkeep: lost jobs, finished drains, silent devices, files and rows that nothing needs."""
    from registry import storage
    from registry.audit import recording as audit
    from registry.services import finish_drains
    from scheduler import retention
    from scheduler.control import upkeep
    from scheduler.profiling.dispatch import dispatch, requeue_silent
    from scheduler.repairs import listing

    for step in (
        upkeep.write_off_silent_devices,
        upkeep.lapse_ended_certificates,
        finish_drains,
        requeue_silent,
        dispatch,
        upkeep.replan_if_devices_changed,
        storage.sweep,
        retention.enforce,
        audit.prune,
        listing.watch,
    ):
        try:
            step()
        except Exception:
            # The others must not wait until this one works again.
            logger.exception("upkeep_failed", step=step.__name__)
