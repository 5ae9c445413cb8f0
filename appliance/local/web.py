"""gunicorn's worker and settings: ``-c python:appliance.local.web``."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile

from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from uvicorn_worker import UvicornWorker

from appliance.local.asgi_server import HEAD_BYTES, LimitedProtocol, Server
from workers import log
from workers.settings import Settings
from workers.trust.server import ServerIdentity

#: seconds that open requests and websockets get at shutdown; without a limit uvicorn waits for browsers to leave
GRACE_S = 1


class StructuredLogger(Logger):
    """gunicorn's logger, through the root logger: all processes share one format."""

    def setup(self, cfg) -> None:
        super().setup(cfg)
        self.error_log.handlers = []
        self.error_log.propagate = True


class ConsoleWorker(UvicornWorker):
    """An ASGI worker that does not wait for open websockets when stopped."""

    CONFIG_KWARGS = {
        "loop": "uvloop",
        "http": LimitedProtocol,
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "server_header": False,
        "lifespan": "off",
        "timeout_graceful_shutdown": GRACE_S,
        # A node's join message names all its devices.
        "ws_max_size": 8 * 1024 * 1024,
        # Messages that wait to be read; a member that sends too fast is read slowly.
        "ws_max_queue": 4,
        "ws_ping_interval": 5.0,
        # Reading pauses while messages wait for their consumer, and an answer to a ping waits behind them: a link that
        # is given up for that costs a join, which makes the next one later still.
        "ws_ping_timeout": 60.0,
    }

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for name in ("uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).propagate = True

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        identity = ServerIdentity(_settings, "http/1.1") if _settings.console.tls else None
        server = Server(self.config, identity)
        self._install_sigquit_handler()
        await server.serve(sockets=self.sockets)
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)


def post_fork(server: Arbiter, worker: ConsoleWorker) -> None:
    """Have Django spool bodies on the appliance's own disk, in an empty folder."""
    spool = _settings.home / "tmp"
    shutil.rmtree(spool, ignore_errors=True)
    spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    tempfile.tempdir = str(spool)


def post_worker_init(worker: ConsoleWorker) -> None:
    """Run Django's checks. Raises SystemCheckError: the worker does not start."""
    from django.core.management.base import BaseCommand

    BaseCommand().check()


_settings = Settings.from_environ()
log.configure("web", _settings.log_level)
logger_class = StructuredLogger
bind = str(_settings.console)
worker_class = "appliance.local.web.ConsoleWorker"
workers = 1
graceful_timeout = GRACE_S + 1
timeout = 120
# A close that crosses a client's next request costs that request, so connections wait longer than clients keep them
# (httpx2 5 s, browsers a minute or more); asgi_server.MAX_CONNECTIONS bounds how many wait.
keepalive = 75
# Other peers' forwarding headers are ignored, so that nobody chooses the address that throttles and audit entries show.
forwarded_allow_ips = ",".join(_settings.trusted_proxies)
accesslog = None
errorlog = "-"
loglevel = "warning"
proc_name = "nereus-web"
# gunicornc is not used, and no socket should stay behind.
control_socket_disable = True
