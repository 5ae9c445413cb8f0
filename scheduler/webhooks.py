"""Webhook deliveries in the background: a few at once, failed ones again later, a bounded number."""

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
    return live.key(f"webhook_deliveries:{pk}")


def _waiting(pk: int) -> dict[str, dict[str, Any]]:
    """A webhook's deliveries that wait, by id: ``since``, ``event``, ``tries`` that failed, when ``again``.

    Boxes that share a Redis share no steady clock: moments are by the wall clock, give or take its errors.
    """
    client, key = live.client(), _key(pk)
    found = {delivery: json.loads(text) for delivery, text in client.hgetall(key).items()}
    now = clock.wall()
    if lost := [delivery for delivery, kept in found.items() if abs(now - kept.get("since", 0.0)) > LOST_S]:
        client.hdel(key, *lost)
    return {delivery: kept for delivery, kept in found.items() if delivery not in lost}


def _keep(pk: int, text: str, tries: int = 0, again_s: float = 0.0) -> None:
    body, client, key, now = json.loads(text), live.client(), _key(pk), clock.wall()
    kept = {"since": now, "event": body["event"], "tries": tries, "again": now + again_s}
    client.hset(key, body["id"], json.dumps(kept))
    client.expire(key, LOST_S)


def _forget(pk: int, text: str) -> None:
    live.client().hdel(_key(pk), json.loads(text)["id"])


def retries(pk: int) -> list[Retry]:
    """A webhook's deliveries to be tried again, next first; none without Redis."""
    found = []
    with suppress(RedisError):
        found = [kept for kept in _waiting(pk).values() if kept["tries"]]
    return [
        Retry(kept["event"], kept["tries"], datetime.fromtimestamp(kept["again"], UTC))
        for kept in sorted(found, key=lambda kept: kept["again"])
    ]


def announce(event: str, data: Callable[[], dict[str, Any]]) -> None:
    """Queue an event, made by ``data``, for each webhook that wants it. Redis may be away."""
    wanting = [hook for hook in Webhook.objects.filter(enabled=True) if event in hook.events]
    text = outgoing.body(event, data()) if wanting else ""
    with suppress(RedisError):
        dropped = [hook.name for hook in wanting if not _queue(hook.pk, text)]
        if dropped:
            logger.warning("webhook_events_dropped", webhooks=dropped, of=event)


def _queue(pk: int, text: str) -> bool:
    if len(_waiting(pk)) >= MOST_WAITING:
        return False
    _keep(pk, text)
    try:
        current_app.send_task(TASK, args=[pk, text, 0])
    except OperationalError:
        _forget(pk, text)
        return False
    return True


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
            _forget(pk, text)
    with suppress(DatabaseError):
        for name in Webhook.objects.filter(pk=pk).values_list("name", flat=True):
            events.changed("webhook", name)
    close_old_connections()


def _tried(pk: int, text: str, attempt: int) -> bool:
    delivered = outgoing.deliver(pk, text, attempt)
    if delivered is None or delivered.again_s is None:
        return False
    current_app.send_task(TASK, args=[pk, text, attempt + 1], countdown=delivered.again_s)
    with suppress(RedisError):
        _keep(pk, text, attempt + 1, delivered.again_s)
    return True


def test(hook: Webhook) -> outgoing.Delivered:
    """Deliver an event that says that it is a test, now and once."""
    delivered = outgoing.tried(hook, outgoing.body("test", {"webhook": hook.name, "text": "A test from Nereus."}))
    events.changed("webhook", hook.name)
    return delivered
