"""The node daemon's small HTTP server, for operators and Prometheus.

It has ``/health`` and ``/metrics``.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import msgspec

from .. import log
from ..addresses import Address
from ..metrics_access import LOOPBACK, REFUSAL, MetricsAccess
from ..net.http1 import Exchange, HttpServer, RequestHead, Response
from ..net.limits import Http1Limits
from .metrics import NodeMetrics

if TYPE_CHECKING:
    from .daemon import NodeDaemon

#: a monitoring system and an operator are few, and their requests have no body
LIMITS = Http1Limits(
    body_bytes=64 * 1024, buffered_bytes=1024 * 1024, connections=64, head_bytes=16 * 1024, head_s=10.0, idle_s=30.0
)
#: seconds for requests in progress on shutdown
GRACE_S = 1.0


class NodePages:
    def __init__(self, daemon: NodeDaemon, access: MetricsAccess):
        self._daemon = daemon
        self._access = access
        self._metrics = NodeMetrics(daemon)
        self._log = log.get("http")
        self._answering: dict[Exchange, asyncio.Task] = {}

    def preflight(self, head: RequestHead) -> Response | None:
        path, method = head.target.decode("latin-1"), head.method.decode("latin-1")
        if path not in ("/health", "/metrics"):
            return _problem(404, f"no such page: {path[:200]}; there are /health and /metrics")
        if method not in ("GET", "HEAD"):
            status, headers, body = _problem(405, f"{method[:20]} is not supported here; use GET")
            return status, [*headers, (b"allow", b"GET, HEAD")], body
        return None

    def handle(self, exchange: Exchange) -> None:
        self._answering[exchange] = asyncio.create_task(self._answer(exchange))

    def disconnected(self, exchange: Exchange) -> None:
        # A request that waited behind others may not have been handled yet.
        if exchange in self._answering:
            self._answering.pop(exchange).cancel()

    def render_error(self, status: int, message: str) -> Response:
        return _problem(status, message)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            permitted = self._access.permit(exchange.connection.peer, exchange.head.headers)
            if exchange.head.target == b"/health":
                state = self.health() if permitted else {"status": self.health()["status"]}
                response = _page(b"application/json", msgspec.json.encode(state))
            elif not permitted:
                response = _problem(403, REFUSAL)
            else:
                response = _page(b"text/plain; version=0.0.4; charset=utf-8", (await self._metrics.page()).encode())
        except Exception as error:
            self._log.exception("request_failed", path=exchange.head.target.decode("latin-1"))
            response = _problem(500, f"{type(error).__name__}: {error}")
        self._answering.pop(exchange, None)
        exchange.respond(*response)

    def health(self) -> dict:
        """``/health``: ``ok`` while all devices serve, with or without a control plane."""
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


def _page(kind: bytes, body: bytes, status: int = 200) -> Response:
    return status, [(b"content-type", kind)], [body]


def _problem(status: int, detail: str) -> Response:
    return _page(b"application/problem+json", msgspec.json.encode({"status": status, "detail": detail}), status)


def listen(address: Address) -> socket.socket:
    """A listening socket; OSError names the variable of an address that is not free."""
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


async def serve(daemon: NodeDaemon, listener: socket.socket, access: MetricsAccess = LOOPBACK) -> None:
    server = HttpServer(NodePages(daemon, access), LIMITS)
    await server.start(listener=listener)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await server.drain(GRACE_S)
        server.close()
