"""The web server's worker class and settings for gunicorn (``gunicorn -c python:appliance.local.web``)."""

from __future__ import annotations

import logging

from gunicorn.glogging import Logger
from uvicorn_worker import UvicornWorker

from workers import log
from workers.settings import Settings

#: seconds that open requests and websockets get at shutdown; without a limit uvicorn waits for browsers to leave
GRACE_S = 1


class StructuredLogger(Logger):
    """gunicorn's and uvicorn's lines through the root logger, in the one format that all processes share."""

    def setup(self, cfg) -> None:
        super().setup(cfg)
        self.error_log.handlers = []
        self.error_log.propagate = True


class Worker(UvicornWorker):
    """An ASGI worker that does not wait for open websockets when stopped."""

    CONFIG_KWARGS = {
        "loop": "uvloop",
        "http": "httptools",
        "lifespan": "off",
        "timeout_graceful_shutdown": GRACE_S,
        # A node's join message names all its devices.
        "ws_max_size": 8 * 1024 * 1024,
        "ws_ping_interval": 5.0,
        "ws_ping_timeout": 10.0,
    }

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for name in ("uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).propagate = True


_settings = Settings.from_environ()
log.configure("web", _settings.log_level)
logger_class = StructuredLogger
bind = str(_settings.console)
worker_class = "appliance.local.web.Worker"
workers = 1
graceful_timeout = GRACE_S + 1
timeout = 120
accesslog = None
errorlog = "-"
loglevel = "warning"
proc_name = "nereus-web"
# gunicornc is not used, and no socket should stay behind.
control_socket_disable = True
