"""The largest requests that are read, by application."""

from __future__ import annotations

import functools
from collections.abc import Callable

from workers.net.http1 import RequestHead
from workers.protocol.specs import ApplicationSpec
from workers.v2.sizes import BodyLimits, body_limits

from .catalog import Catalog
from .errors import BodyTooLarge
from .parsing import IN_LOOP_BYTES


class BodySizes:
    """Limits that follow from what applications take.

    Args:
        query_rows: the most rows of a query, at present.
        max_bytes, max_json_bytes: of a request for any application.
    """

    def __init__(self, query_rows: Callable[[], int], max_bytes: int, max_json_bytes: int):
        self._query_rows = query_rows
        self.max_bytes = max_bytes
        self._max_json_bytes = max_json_bytes
        # Signatures stay the same while plans come and go.
        self._of = functools.lru_cache(1024)(
            lambda signature, rows: body_limits(signature, rows, self.max_bytes, self._max_json_bytes)
        )
        self.message_bytes = functools.lru_cache(1)(self._message_bytes)

    def of(self, spec: ApplicationSpec) -> BodyLimits:
        return self._of(spec.signature, self._query_rows())

    def _message_bytes(self, catalog: Catalog) -> int:
        """Return the bytes of the largest gRPC message of any application.

        Calls name theirs only in the message. It is at least :data:`IN_LOOP_BYTES`.
        """
        return max([IN_LOOP_BYTES, *(self.of(spec).message_bytes for spec in catalog.applications.values())])

    def check(self, catalog: Catalog, model: str, head: RequestHead, header_length: int | None) -> None:
        length = head.length
        if model not in catalog.applications:
            if length is None or length > IN_LOOP_BYTES:
                catalog.application(model)
            return
        spec = catalog.applications[model]
        limits = self.of(spec)
        json_length = length
        if header_length is not None and (length is None or header_length <= length):
            json_length = header_length
        if json_length is not None and json_length > limits.json_bytes:
            raise BodyTooLarge(f"body: {json_length} bytes of JSON; at most {self._explained(spec, limits)}")
        head.body_bytes = limits.json_bytes
        if header_length is not None:
            head.body_bytes += limits.binary_bytes
        if length is not None and length > head.body_bytes:
            rows = self._query_rows()
            raise BodyTooLarge(
                f"body: {length} bytes; at most {head.body_bytes}, ample for the {rows} rows that a query of "
                f"{spec.name!r} may have"
            )

    def _explained(self, spec: ApplicationSpec, limits: BodyLimits) -> str:
        if limits.json_capped:
            return f"{limits.json_bytes} (NEREUS_MAX_JSON_MB); send large tensors as binary data"
        rows = self._query_rows()
        return f"{limits.json_bytes}, ample for the {rows} rows that a query of {spec.name!r} may have"
