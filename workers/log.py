"""One structured line an event, to standard error, without query contents. The same shape in every process."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import structlog


def configure(process: str, level: str = "info", path: Path | None = None) -> None:
    """Write JSON lines with time, level, process and event, to ``path`` or standard error; library logs join them."""
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
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper()))
    logging.captureWarnings(True)
    for noisy in (
        "httpx",
        "httpcore",
        "websockets",
        "asyncio",
        "celery.worker.strategy",
        "celery.app.trace",
        "uvicorn.access",
    ):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger bound to a component's name."""
    return structlog.get_logger(name)
