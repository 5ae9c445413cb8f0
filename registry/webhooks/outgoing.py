"""One try of a webhook's delivery, signed; :mod:`scheduler.webhooks` queues them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import time
import uuid
from dataclasses import dataclass
from typing import Any

import httpx2
from django.conf import settings
from django.db.models import F
from django.utils import timezone

from registry.webhooks.rows import Webhook
from registry.webhooks.targets import ForbiddenTarget, Target, resolved
from workers import log

logger = log.get("webhooks")

#: seconds for a delivery, whatever the receiver does; a resolver has its own limits
TIMEOUT_S = 5.0
#: pauses before further tries, seconds; after the last one a delivery is given up
PAUSES_S = (10, 60, 300, 1800)
#: deliveries that failed in a row, after which an address gets each event once
TIRED = 50
#: tries of a delivery
TRIES = len(PAUSES_S) + 1


@dataclass(frozen=True)
class Delivered:
    """The end of one attempt.

    Attributes:
        status: HTTP's; None: there was no answer.
        error: empty: it was taken.
        took_ms: of the try.
        again_s: seconds until the next try; None: there is none.
    """

    status: int | None
    error: str
    took_ms: float
    again_s: int | None = None


def body(event: str, data: dict[str, Any]) -> str:
    return json.dumps({"id": uuid.uuid4().hex, "event": event, "at": timezone.now().isoformat(), "data": data})


def deliver(pk: int, text: str, attempt: int = 0) -> Delivered | None:
    """Try a delivery once; None: the webhook is gone or switched off."""
    hook = Webhook.objects.filter(pk=pk, enabled=True).first()
    return None if hook is None else tried(hook, text, attempt)


def tried(hook: Webhook, text: str, attempt: int | None = None) -> Delivered:
    began = time.monotonic()
    status, error = _posted(hook, text)
    took_ms = round((time.monotonic() - began) * 1e3, 1)
    again = None
    if error and attempt is not None and attempt < len(PAUSES_S) and hook.failures < TIRED:
        again = PAUSES_S[attempt]
    failures = F("failures") + 1 if error else 0
    # Not a change of an operator's, so that the audit log has none of it.
    Webhook.objects.filter(pk=hook.pk).update(tried=timezone.now(), status=status, error=error[:300], failures=failures)
    logger.info("webhook", webhook=hook.name, status=status, error=error, attempt=attempt, again_s=again)
    return Delivered(status, error, took_ms, again)


def signature(hook: Webhook, text: str, at: int) -> str:
    """The header that shows an event's origin and age to its receiver."""
    digest = hmac.new(hook.secret.encode(), f"{at}.{text}".encode(), hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _posted(hook: Webhook, text: str) -> tuple[int | None, str]:
    try:
        target = resolved(hook.url)
    except ForbiddenTarget as error:
        return None, f"url: {error}"
    headers = {
        "Host": _host(target),
        "Content-Type": "application/json",
        "User-Agent": "nereus-webhook",
        "Nereus-Signature": signature(hook, text, int(time.time())),
    }
    try:
        status = asyncio.run(_status(target, text, headers))
    except TimeoutError:
        return None, f"no answer within {TIMEOUT_S:g} s"
    except (httpx2.HTTPError, OSError, ValueError) as error:
        return None, f"{type(error).__name__}: {error}"
    return status, "" if 200 <= status < 300 else f"answered {status}; 200 to 299 is needed"


async def _status(target: Target, text: str, headers: dict[str, str]) -> int:
    """HTTP's status; a receiver that sends byte by byte is cut off, too."""
    # The environment's proxies would resolve the name anew.
    options = {"timeout": None, "trust_env": False, "follow_redirects": False, "verify": _trust(target)}
    async with (
        asyncio.timeout(TIMEOUT_S),
        httpx2.AsyncClient(**options) as client,
        client.stream(
            "POST", target.url, content=text, headers=headers, extensions={"sni_hostname": target.host}
        ) as response,
    ):
        # The answer's body is of no use, and could be endless.
        return response.status_code


def _trust(target: Target) -> ssl.SSLContext | bool:
    if target.scheme != "https":
        return False
    context = ssl.create_default_context()
    if settings.NEREUS.ca_file is not None:
        context.load_verify_locations(settings.NEREUS.ca_file)
    return context


def _host(target: Target) -> str:
    shown = f"[{target.host}]" if ":" in target.host else target.host
    return f"{shown}:{target.port}"
