"""Compression of text responses: a large plan shrinks to a thirtieth."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

#: models and archives go out as they are: they gain little, and nodes resume them by byte ranges
TEXTS = frozenset(
    {"text/html", "text/css", "text/javascript", "application/javascript", "application/json", "image/svg+xml"}
)


class TextCompression(GZipMiddleware):
    """Whole answers of these types, to clients that accept gzip.

    Django pads them by a random length, so that sizes do not give away what a page has beside a text of an attacker's.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        kind = response.get("Content-Type", "").partition(";")[0]
        if response.status_code != 200 or kind not in TEXTS:
            return response
        return super().process_response(request, response)
