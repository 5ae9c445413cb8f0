"""Structured logging: one line an event, to standard error, in all processes.

Lines have the same shape in every process, and never contents of queries. Lines have a limited length, and lines of a
kind a limited rate: nobody can fill a disk by causing them. The first line after those left out has their number.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .token_bucket import TokenBucket


def _structlog() -> ModuleType:
    """structlog without rich, which would take as long to load for colours."""
    hidden = sys.modules.setdefault("rich", None) is None
    try:
        return importlib.import_module("structlog")
    finally:
        if hidden:
            del sys.modules["rich"]


structlog = _structlog()

#: characters of one value, of a path or another argument that clients choose, and of a traceback
VALUE_CHARS, CLIENT_CHARS, TRACEBACK_CHARS = 2_000, 200, 8_000
#: loggers whose lines quote what clients sent
_QUOTING = ("django", "uvicorn", "gunicorn", "daphne", "websockets")
#: kinds of lines whose rates are remembered
_KINDS = 1_000


class LimitedRate(logging.Filter):
    """Leaves out lines of a kind that come too often.

    A kind is a logger, a level and an event. Refused requests (4xx) are counted rather than logged: five lines, then
    one a minute for each status.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self._clock = clock
        self._buckets: dict[tuple, TokenBucket] = {}
        self._left_out: Counter[tuple] = Counter()
        self._all = TokenBucket(2_000, 20.0)

    def filter(self, record: logging.LogRecord) -> bool:
        kind, burst, every_s = self._kind(record)
        if kind not in self._buckets and len(self._buckets) >= _KINDS:
            self._buckets.clear()
            self._left_out.clear()
        bucket = self._buckets.setdefault(kind, TokenBucket(burst, 1.0 / every_s))
        now = self._clock()
        if not bucket.takes(now) or not self._all.takes(now):
            self._left_out[kind] += 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.left_out = left_out
        return True

    @staticmethod
    def _kind(record: logging.LogRecord) -> tuple[tuple, int, float]:
        status = getattr(record, "status_code", 0)
        if 400 <= status < 500 or record.name.startswith("django.security"):
            return (record.name, status), 5, 60.0
        event = record.msg.get("event") if isinstance(record.msg, dict) else record.msg
        return (record.name, record.levelno, str(event)[:CLIENT_CHARS]), 100, 1.0


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 4]}…({len(text)} characters)…{text[-limit * 3 // 4 :]}"


def _quoting_less(record: logging.LogRecord) -> bool:
    """Cut what clients sent before it becomes part of a line."""
    if record.name.startswith(_QUOTING) and isinstance(record.args, tuple):
        record.args = tuple(_cut(arg, CLIENT_CHARS) if isinstance(arg, str) else arg for arg in record.args)
    return True


def _bounded(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    record = event.get("_record")
    if record is not None and hasattr(record, "left_out"):
        event["left_out"] = record.left_out
    for name, value in event.items():
        if isinstance(value, dict | list | tuple | set) and len(text := repr(value)) > VALUE_CHARS:
            value = event[name] = text
        if isinstance(value, str):
            limit = {"exception": TRACEBACK_CHARS, "path": CLIENT_CHARS}.get(name, VALUE_CHARS)
            event[name] = _cut(value, limit)
    return event


def configure(process: str, level: str = "info", path: Path | None = None) -> None:
    """Write JSON lines to ``path`` or standard error, the libraries' logs as well."""
    shared = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _logger, _method, event: {"process": process, **event},
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        cache_logger_on_first_use=True,
    )
    handler = logging.FileHandler(path) if path is not None else logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.processors.format_exc_info,
                _bounded,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(LimitedRate())
    handler.addFilter(_quoting_less)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper()))
    logging.captureWarnings(True)
    for noisy in (
        "httpx2",
        "httpcore",
        "websockets",
        "asyncio",
        "celery.worker.strategy",
        "celery.app.trace",
        "uvicorn.access",
    ):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def get(name: str) -> structlog.stdlib.BoundLogger:
    return structlog.get_logger(name)
