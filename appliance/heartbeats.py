"""Heartbeats of Celery's processes, which the supervisor watches.

A file is touched where something was done. Beat sends :data:`TASK` to all queues; it touches its own file when it
sends, and a worker touches its queue's when it runs the task. So a worker that lost its queue is found as well as one
whose process hangs.
"""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import before_task_publish
from django.conf import settings

from workers import log

TASK = "appliance.heartbeat"

logger = log.get("heartbeats")


@shared_task(name=TASK)
def beat(service: str) -> None:
    """Show that a worker takes tasks from its queue."""
    _touch(service)


@before_task_publish.connect
def _sending(sender: str, **_: Any) -> None:
    if sender == TASK:
        _touch("beat")


def _touch(service: str) -> None:
    try:
        settings.NEREUS.heartbeat(service).touch()
    except OSError as error:
        logger.error("heartbeat_failed", service=service, reason=str(error))
