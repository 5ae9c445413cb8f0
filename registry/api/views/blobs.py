"""Stored files for nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import BinaryIO

from django.http import Http404, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.views import APIView

from registry import storage
from registry.api.authentication import BearerAuthentication, NodeAuthentication
from registry.api.schema import ProblemSchema


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

    @extend_schema(operation_id="blobs_get", responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request, digest):
        """For approved nodes and model owners."""
        if not storage.referenced(digest):
            raise Http404
        try:
            file = storage.path(digest).open("rb")
        except FileNotFoundError:
            raise Http404 from None
        size = file.seek(0, 2)
        file.seek(0)
        # Not a FileResponse: under ASGI, Django would gather such a synchronous file in memory before it sends it.
        response = StreamingHttpResponse(_chunks(file), content_type="application/octet-stream")
        response["Content-Length"] = str(size)
        response["ETag"] = f'"{digest}"'
        return response


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, storage.CHUNK):
            yield chunk
