"""Webhook deliveries in the background: a few at once, tried again later, so many waiting at most."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from celery import current_app
from django.db import close_old_connections
from redis import RedisError

from registry.webhooks import outgoing
from registry.webhooks.rows import Webhook
from scheduler import live

#: deliveries of a webhook that wait, further tries included, and seconds after which a lost count is forgotten
MOST_WAITING, COUNT_EXPIRES_S = 50, 7200
#: deliveries at once in a worker, and those that wait for their turn there
AT_ONCE = 2
TASK = "scheduler.webhook"

#: apart from the worker's own threads, which push plans: an address that does not answer must not delay these
_pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")


def _key(pk: int) -> str:
    return live.key(f"webhook_waiting:{pk}")


def announce(event: str, data: Any) -> None:
    """Queue an event for every webhook that wants it. ``data`` makes its content. Redis may be away."""
    with suppress(RedisError):
        outgoing.announce(event, data, _queue)


def _queue(pk: int, text: str) -> bool:
    client = live.client()
    waiting = client.incr(_key(pk))
    client.expire(_key(pk), COUNT_EXPIRES_S)
    if waiting > MOST_WAITING:
        client.decr(_key(pk))
        return False
    current_app.send_task(TASK, args=[pk, text, 0])
    return True


def hand_over(pk: int, text: str, attempt: int) -> None:
    """Deliver in a thread of this process."""
    _pool.submit(_deliver, pk, text, attempt)


def _deliver(pk: int, text: str, attempt: int) -> None:
    again_s = None
    try:
        delivered = outgoing.deliver(pk, text, attempt)
        again_s = delivered.again_s if delivered is not None else None
        if again_s is not None:
            current_app.send_task(TASK, args=[pk, text, attempt + 1], countdown=again_s)
    finally:
        close_old_connections()
        if again_s is None:
            with suppress(RedisError):
                live.client().decr(_key(pk))


def test(hook: Webhook) -> outgoing.Delivered:
    """Deliver an event that says that it is a test, now and once."""
    return outgoing.tried(hook, outgoing.body("test", {"webhook": hook.name, "text": "A test from Nereus."}))
