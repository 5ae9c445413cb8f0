"""Webhook deliveries in the background.

A few are sent at once; failed ones are tried again later. The queue is bounded.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from celery import current_app
from django.db import close_old_connections
from kombu.exceptions import OperationalError
from redis import RedisError

from registry import clock
from registry.webhooks import outgoing
from registry.webhooks.rows import Webhook
from scheduler import live
from workers import log

logger = log.get("webhooks")

#: deliveries of a webhook that wait, further tries included, and seconds after which one was lost with its worker
MOST_WAITING, LOST_S = 50, 7200
#: deliveries at once in a worker, and those that wait for their turn there
AT_ONCE = 2
TASK = "scheduler.webhook"

#: apart from the worker's own threads, which push plans: an address that does not answer must not delay these
_pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")


def _key(pk: int) -> str:
    return live.key(f"webhook_waiting:{pk}")


def announce(event: str, data: Any) -> None:
    """Queue an event for every webhook that wants it.

    Redis may be away.

    Args:
        data: makes the event's content.
    """
    with suppress(RedisError):
        outgoing.announce(event, data, _queue)


def _queue(pk: int, text: str) -> bool:
    client, key, delivery, now = live.client(), _key(pk), _id(text), clock.wall()
    client.zremrangebyscore(key, "-inf", now - LOST_S)
    # The clock was ahead when these were queued, so that nothing says when they are lost.
    client.zremrangebyscore(key, now + 1, "inf")
    if client.zcard(key) >= MOST_WAITING:
        return False
    client.zadd(key, {delivery: now})
    client.expire(key, LOST_S)
    try:
        current_app.send_task(TASK, args=[pk, text, 0])
    except OperationalError:
        client.zrem(key, delivery)
        return False
    return True


def _id(text: str) -> str:
    return json.loads(text)["id"]


def hand_over(pk: int, text: str, attempt: int) -> None:
    """Deliver in a thread of this process."""
    _pool.submit(_deliver, pk, text, attempt)


def _deliver(pk: int, text: str, attempt: int) -> None:
    waits = False
    try:
        delivered = outgoing.deliver(pk, text, attempt)
        if delivered is not None and delivered.again_s is not None:
            current_app.send_task(TASK, args=[pk, text, attempt + 1], countdown=delivered.again_s)
            waits = True
    except Exception:
        # The thread pool would keep it to itself.
        logger.exception("webhook_delivery_lost", webhook=pk)
    finally:
        close_old_connections()
        if not waits:
            with suppress(RedisError):
                live.client().zrem(_key(pk), _id(text))


def test(hook: Webhook) -> outgoing.Delivered:
    """Deliver an event that says that it is a test, now and once."""
    return outgoing.tried(hook, outgoing.body("test", {"webhook": hook.name, "text": "A test from Nereus."}))
