"""Sending tasks by name: code that asks for work need not know the code that does it."""

from __future__ import annotations

from celery import current_app
from django.db import transaction

#: seconds for which a task may wait: later the periodic tasks have done the same, or will do it with a fresher state
EXPIRES_S = 30.0


def send(task: str) -> None:
    """Queue a task by its registered name, once the current transaction is committed."""
    transaction.on_commit(lambda: current_app.send_task(task, expires=EXPIRES_S))
