"""Pages that need no key.

They are readiness for all, and operating figures for permitted addresses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from workers.metrics_access import REFUSAL, MetricsAccess
from workers.net.http1 import Exchange, Response

from .errors import Forbidden
from .metadata import Metadata

_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")

#: part of the time that rendering metrics may take
PAGE_SHARE = 0.1


class OpenPages:
    def __init__(self, metadata: Metadata, metrics: Callable[[], bytes], access: MetricsAccess):
        self._metadata = metadata
        self._metrics = metrics
        self._access = access
        #: the metrics, and until when they are good enough
        self._page, self._page_until = b"", 0.0

    def live(self, exchange: Exchange, _: object) -> None:
        exchange.respond(*_json(200, {"live": True}))

    def ready(self, exchange: Exchange, _: object) -> None:
        why = self._metadata.not_ready()
        # The protocol asks for a 4xx status, where 503 is common elsewhere.
        exchange.respond(*_json(400 if why else 200, {"ready": False, "error": why} if why else {"ready": True}))

    def health(self, exchange: Exchange, _: object) -> None:
        """``/health``: one word where the figures are not permitted."""
        # Strangers may ask as often as they like, and figures of a large cluster take a while.
        permitted = self._permits(exchange)
        exchange.respond(*_json(200, self._metadata.health() if permitted else {"status": self._metadata.status()}))

    def metrics(self, exchange: Exchange, _: object) -> None:
        if not self._permits(exchange):
            raise Forbidden(REFUSAL)
        now = time.monotonic()
        if now > self._page_until:
            self._page = self._metrics()
            done = time.monotonic()
            # Who is permitted may ask as often as they like.
            self._page_until = done + (done - now) / PAGE_SHARE
        exchange.respond(200, [_TEXT], [self._page])

    def _permits(self, exchange: Exchange) -> bool:
        return self._access.permit(exchange.connection.peer, exchange.head.headers)


def _json(status: int, body: Mapping[str, Any]) -> Response:
    return status, [_JSON], [msgspec.json.encode(body)]
