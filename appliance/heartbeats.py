"""Heartbeats of Celery's processes, which the supervisor watches.

A worker touches its file when it runs :data:`TASK`, which is sent to all queues periodically. So a worker that lost its
queue is found as well as one whose process hangs. A worker that makes a plan touches its file at each step of it, too,
as a plan may take minutes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from celery import Task, shared_task
from celery.signals import task_prerun
from django.conf import settings

from workers import log

TASK = "appliance.heartbeat"
#: queues whose workers make plans, one task at a time
PLANNING = ("planning", "simulation")

logger = log.get("heartbeats")


@shared_task(name=TASK)
def beat(service: str) -> None:
    _touch(service)


@task_prerun.connect
def _beginning(task: Task, **_: Any) -> None:
    queue = task.request.delivery_info.get("routing_key", "")
    if queue in PLANNING:
        # Other processes need none of it.
        from scheduler import progress

        progress.report_to(partial(_touch, queue))


def _touch(service: str) -> None:
    try:
        settings.NEREUS.heartbeat(service).touch()
    except OSError as error:
        logger.error("heartbeat_failed", service=service, reason=str(error))
