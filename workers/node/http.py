"""The node daemon's small HTTP server: ``/health`` and ``/metrics``, for operators and Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import uvicorn

from .. import log
from ..settings import Address
from .metrics import NodeMetrics

if TYPE_CHECKING:
    from .daemon import NodeDaemon


class NodeApp:
    """The ASGI application; its paths are few enough to need no framework."""

    def __init__(self, daemon: NodeDaemon):
        self._daemon = daemon
        self._metrics = NodeMetrics(daemon)
        self._log = log.get("http")

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        if path not in ("/health", "/metrics"):
            return _problem(404, f"no such page: {path[:200]}; there are /health and /metrics")
        if method not in ("GET", "HEAD"):
            return _problem(405, f"{method[:20]} is not supported here; use GET")
        try:
            if path == "/health":
                return 200, "application/json", msgspec.json.encode(self.health())
            return 200, "text/plain; version=0.0.4; charset=utf-8", (await self._metrics.page()).encode()
        except Exception as error:
            self._log.exception("request_failed", path=path)
            return _problem(500, f"{type(error).__name__}: {error}")

    def health(self) -> dict:
        """``status`` is ``ok`` when every device is up; the control plane's absence alone harms no query."""
        states = self._daemon.states()
        config = self._daemon.config
        return {
            "status": "ok" if all(state.state in ("up", "draining") for state in states) else "degraded",
            "node": self._daemon.name,
            "link": {"up": self._daemon.link.up, "state": self._daemon.link.state, "detail": self._daemon.link.detail},
            "plan_version": None if config is None else config.plan.version,
            "devices": [
                {**msgspec.to_builtins(state), "pid": self._daemon.executors[state.device].pid} for state in states
            ],
        }


def _problem(status: int, detail: str) -> tuple[int, str, bytes]:
    return status, "application/problem+json", msgspec.json.encode({"status": status, "detail": detail})


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The daemon handles signals; its HTTP server is only a part of it.
        yield


def listen(address: Address) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address is taken or not this box's; the text names the variable.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"NEREUS_NODE_HTTP={address}: cannot listen there: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def serve(daemon: NodeDaemon, listener: socket.socket) -> None:
    """Answer requests until cancelled."""
    server = _Server(
        uvicorn.Config(
            NodeApp(daemon),
            lifespan="off",
            loop="none",
            http="httptools",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=64,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
