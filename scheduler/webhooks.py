"""Webhook deliveries in the background.

A few are sent at once; failed ones are tried again later. The queue is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from celery import current_app
from django.db import DatabaseError, close_old_connections
from kombu.exceptions import OperationalError
from redis import RedisError

from registry import clock, events
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


@dataclass(frozen=True)
class Retry:
    """A delivery tried again; ``tries``: that failed; ``again``: when it is due."""

    event: str
    tries: int
    again: datetime


def _key(pk: int) -> str:
    return live.key(f"webhook_waiting:{pk}")


def _retries_key(pk: int) -> str:
    return live.key(f"webhook_retries:{pk}")


def retries(pk: int) -> list[Retry]:
    """A webhook's deliveries to be tried again, next first; none without Redis."""
    kept = []
    with suppress(RedisError):
        client, oldest = live.client(), clock.wall() - LOST_S
        waiting = set(client.zrangebyscore(_key(pk), oldest, "inf"))
        kept = [text for each, text in client.hgetall(_retries_key(pk)).items() if each in waiting]
    found = [json.loads(text) for text in kept]
    return sorted(
        (Retry(one["event"], one["tries"], datetime.fromtimestamp(one["again"], UTC)) for one in found),
        key=lambda retry: retry.again,
    )


def announce(event: str, data: Callable[[], dict[str, Any]]) -> None:
    """Queue an event, made by ``data``, for each webhook that wants it. Redis may be away."""
    wanting = [hook for hook in Webhook.objects.filter(enabled=True) if event in hook.events]
    text = outgoing.body(event, data()) if wanting else ""
    with suppress(RedisError):
        dropped = [hook.name for hook in wanting if not _queue(hook.pk, text)]
        if dropped:
            logger.warning("webhook_events_dropped", webhooks=dropped, of=event)


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
    _pool.submit(_deliver, pk, text, attempt)


def _deliver(pk: int, text: str, attempt: int) -> None:
    waits = False
    try:
        waits = _tried(pk, text, attempt)
    except Exception:
        # The thread pool would keep it to itself.
        logger.exception("webhook_delivery_lost", webhook=pk)
    if not waits:
        with suppress(RedisError):
            live.client().zrem(_key(pk), _id(text))
            live.client().hdel(_retries_key(pk), _id(text))
    with suppress(DatabaseError):
        for name in Webhook.objects.filter(pk=pk).values_list("name", flat=True):
            events.changed("webhook", name)
    close_old_connections()


def _tried(pk: int, text: str, attempt: int) -> bool:
    delivered = outgoing.deliver(pk, text, attempt)
    if delivered is None or delivered.again_s is None:
        return False
    current_app.send_task(TASK, args=[pk, text, attempt + 1], countdown=delivered.again_s)
    _note_retry(pk, text, attempt + 1, delivered.again_s)
    return True


def _note_retry(pk: int, text: str, tries: int, again_s: int) -> None:
    """Keep for people when a delivery is tried again."""
    kept = {"event": json.loads(text)["event"], "tries": tries, "again": clock.wall() + again_s}
    with suppress(RedisError):
        live.client().hset(_retries_key(pk), _id(text), json.dumps(kept))
        live.client().expire(_retries_key(pk), LOST_S)


def test(hook: Webhook) -> outgoing.Delivered:
    """Deliver an event that says that it is a test, now and once."""
    delivered = outgoing.tried(hook, outgoing.body("test", {"webhook": hook.name, "text": "A test from Nereus."}))
    events.changed("webhook", hook.name)
    return delivered
