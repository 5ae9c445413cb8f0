"""One structured line an event, to standard error, without query contents. The same shape in every process."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(process: str, level: str = "info") -> None:
    """Write JSON lines with time, level, process and event; library logs of warning and above join them."""
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
    handler = logging.StreamHandler(sys.stderr)
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
    for noisy in ("httpx", "httpcore", "websockets", "asyncio", "daphne", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger bound to a component's name."""
    return structlog.get_logger(name)
