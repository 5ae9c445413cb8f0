"""Stored files for nodes."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator
from typing import BinaryIO

from django.conf import settings
from django.http import Http404, HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.views import APIView

from registry import storage, transfers
from registry.api import problems
from registry.api.authentication import BearerAuthentication, NodeAuthentication, NodeUser
from registry.api.schema import ProblemSchema

#: bytes that are read and sent at a time: small enough that all transfers move, also at a low rate
CHUNK = 256 * 1024


@functools.cache
def places() -> transfers.Places:
    return transfers.Places(transfers.MOST)


@functools.cache
def pace() -> transfers.Pace:
    return transfers.Pace(settings.NEREUS.blob_bytes_per_s)


class _Anything(BaseContentNegotiation):
    """The file is what it is, whatever the client would accept; errors are problems."""

    def select_parser(self, request, parsers):
        return parsers[0]

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type


class Blob(APIView):
    """A stored file by its digest."""

    schema = ProblemSchema()
    authentication_classes = [NodeAuthentication, BearerAuthentication, SessionAuthentication]
    content_negotiation_class = _Anything

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request, digest):
        """Download a stored file, for approved nodes and model owners.

        One range is served (RFC 9110, section 14), so that a transfer can be resumed; 503 with ``Retry-After`` while
        the limit of transfers is reached.
        """
        if not storage.referenced(digest):
            raise Http404
        try:
            file = storage.path(digest).open("rb")
        except FileNotFoundError:
            raise Http404 from None
        size = file.seek(0, 2)
        start, end = 0, size
        if request.headers.get("if-range", f'"{digest}"') == f'"{digest}"':
            try:
                start, end = _range(request.headers.get("range", ""), size)
            except ValueError:
                file.close()
                return _unsatisfiable(size)
        user = request.user
        receiver = ("node", user.node.pk) if isinstance(user, NodeUser) else ("user", user.pk)
        transfer = places().take(receiver, time.monotonic())
        if transfer is None:
            file.close()
            return _later()
        response = _Sent(file, start, end, transfer)
        response["Content-Length"] = str(end - start)
        response["ETag"] = f'"{digest}"'
        response["Accept-Ranges"] = "bytes"
        if end - start < size:
            response.status_code = 206
            response["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return response


def _range(header: str, size: int) -> tuple[int, int]:
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.replace(" ", ""))
    if match is None or match.groups() == ("", ""):
        return 0, size
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < int(first):
            return 0, size
    if start >= end:
        raise ValueError(header)
    return start, end


def _unsatisfiable(size: int) -> HttpResponse:
    response = problems.render(416, f"range: the file has {size} bytes")
    response["Content-Range"] = f"bytes */{size}"
    return response


def _later() -> HttpResponse:
    response = problems.render(
        503, f"As many files are being sent as may be at a time ({transfers.MOST}), or one to you already."
    )
    response["Retry-After"] = str(transfers.AGAIN_S)
    return response


class _Sent(StreamingHttpResponse):
    """A response that sends a part of a file.

    Its place is free again once the response is closed, however it ends. Not a FileResponse: under ASGI, Django would
    gather such a synchronous file in memory before it sends it.
    """

    def __init__(self, file: BinaryIO, start: int, end: int, transfer: transfers.Transfer) -> None:
        self._file, self._transfer = file, transfer
        super().__init__(_chunks(file, start, end, transfer), content_type="application/octet-stream")

    def close(self) -> None:
        self._file.close()
        places().free(self._transfer)
        super().close()


async def _chunks(file: BinaryIO, start: int, end: int, transfer: transfers.Transfer) -> AsyncIterator[bytes]:
    with file:
        file.seek(start)
        left = end - start
        while left > 0:
            await pace().turn(min(CHUNK, left))
            chunk = await asyncio.to_thread(file.read, min(CHUNK, left))
            if not chunk:
                return
            left -= len(chunk)
            transfer.moved = time.monotonic()
            yield chunk
    places().free(transfer)
