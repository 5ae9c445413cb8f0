"""A gateway put together: edges, a front, and its core, in this process or another one."""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workers import log
from workers.metrics_access import LOOPBACK, MetricsAccess
from workers.net.grpc import GrpcServer
from workers.net.http1 import HttpServer
from workers.net.limits import GrpcLimits, Http1Limits, Http2Limits
from workers.protocol.control import FromMember, GatewayConfig
from workers.protocol.fronts import FrontStats
from workers.protocol.gateways import CoreStatus

from .accounts import Accounts, Limits
from .admin_socket import AdminSocket
from .body_sizes import BodySizes
from .bursts import BurstDetector
from .catalog import Catalog
from .config_file import ConfigFile
from .core_link import CoreLink
from .front import Front
from .metadata import Metadata
from .metrics import GatewayMetrics
from .open_pages import OpenPages
from .parsing import Parsing
from .remote_front import Fronts
from .reports import Reports, merged
from .rest import Rest
from .rollout import Rollout
from .rpc import Rpc
from .shared_stats import SharedStats

logger = log.get("gateway")

#: seconds between the end of a slot of arrivals and its tick, since an event loop's timers count milliseconds
AFTER_S = 0.002
#: seconds after which one of several fronts accepts connections, and their core fronts, even if it cannot serve yet;
#: and seconds between two checks whether it can
PREPARE_S, LOOK_EVERY_S = 1.0, 0.01
#: queries in flight at once in one front, whatever their size
MAX_QUERIES = 20_000
#: bytes of inputs that may be in flight at once, at least
MIN_BYTES = 512 * 1024 * 1024
#: connections to each port, and file descriptors that stay free for executors, files and other processes
MAX_CONNECTIONS, FREE_DESCRIPTORS = 4096, 64
#: bytes of requests that may be read at once over HTTP, and over gRPC, at least
MIN_BUFFERED_BYTES = 256 * 1024 * 1024


class CannotListen(OSError):
    """An address that ``setting`` names cannot be used."""

    def __init__(self, setting: str, address: str, reason: str):
        super().__init__(f"{setting}={address}: {reason}")
        self.setting, self.address, self.reason = setting, address, reason


@dataclass(frozen=True)
class Siblings:
    """One of several fronts on a box, whose core is a process of its own.

    Attributes:
        core: the core's unix socket.
        totals: files of all fronts, the one at ``own`` being its own.
    """

    core: Path
    totals: tuple[Path, ...]
    own: int


@dataclass(frozen=True)
class GatewayOptions:
    """Settings of a gateway. ``host``, ``port``: V2 HTTP; ``grpc_host``, ``grpc_port``: V2 gRPC;
    ``file``: where the configuration is kept; ``queue_rows``: rows that may wait for a device, and the most that one
    query may have; ``max_body_bytes``: the largest HTTP body or gRPC message; ``max_json_bytes``: of its
    JSON; ``address_connections``: of one peer address to each port; ``siblings``: None where front and
    core are one process; ``admin_socket``: where this process alone is asked for metrics and pinged;
    ``http_tls``, ``grpc_tls``: contexts of the two addresses, None: without TLS; ``access``: who may read
    operating figures."""

    name: str
    host: str
    port: int
    grpc_host: str
    grpc_port: int
    file: Path
    queue_rows: int = 512
    max_body_bytes: int = 16 * 1024 * 1024
    max_json_bytes: int = 8 * 1024 * 1024
    address_connections: int = 1024
    adopt_limit_s: float = 5.0
    siblings: Siblings | None = None
    admin_socket: Path | None = None
    http_tls: ssl.SSLContext | None = None
    grpc_tls: ssl.SSLContext | None = None
    access: MetricsAccess = LOOPBACK


async def _listen(
    setting: str, server: HttpServer | GrpcServer, host: str, port: int, shared: bool, tls: ssl.SSLContext | None
) -> None:
    try:
        await server.start(host, port, shared, tls)
    except OSError as error:
        raise CannotListen(setting, f"{host}:{port}", str(error)) from None


class LocalCore:
    """A core with its configuration file and its reports. With a configuration in its file, it serves at once.

    Args:
        send: takes messages for the control plane and never blocks.
    """

    def __init__(self, options: GatewayOptions, metrics: GatewayMetrics, send: Callable[[FromMember], None]) -> None:
        self.rollout = Rollout(options.name, options.queue_rows, options.adopt_limit_s, metrics)
        self.reports = Reports(self.rollout, send)
        self._file = ConfigFile(options.file)

    def load(self) -> GatewayConfig | None:
        """Use the configuration in the file, if there is one."""
        config = self._file.load()
        if config is not None:
            self.rollout.configure(config)
        return config

    def configure(self, config: GatewayConfig) -> bool:
        """Replace the configuration, also in the file; False where it is the present one."""
        if config == self.rollout.config:
            return False
        self.rollout.configure(config)
        self._file.store(config)
        return True

    async def close(self) -> None:
        """Close connections to executors, and finish writing the file."""
        await self.rollout.close()
        await self._file.close()


class FrontProcess:
    """Edges and a front; its core too, unless that is a process of its own.

    Args:
        control_state: says in a word how the link to the control plane is.
    """

    def __init__(
        self,
        options: GatewayOptions,
        send: Callable[[FromMember], None] = lambda message: None,
        control_state: Callable[[], str] = lambda: "none",
    ):
        self._options = options
        siblings = options.siblings
        self._metrics = GatewayMetrics(options.name if siblings is not None else None)
        accounts = Accounts(self._metrics, _limits(options, 0))
        self._shared = SharedStats(siblings.totals, siblings.own, accounts.totals) if siblings is not None else None
        self._front = Front(accounts)
        self._local = LocalCore(options, self._metrics, send) if siblings is None else None
        self._link = None
        if self._local is not None:
            self._front.core = self._local.rollout.core
        else:
            self._link = CoreLink(f"unix:{siblings.core}", options.name, self._front, self._adopt)
            self._front.core = self._link
        self._metadata = Metadata(
            options.name,
            self._front,
            self._status,
            self._metrics,
            control_state,
            self._shared.elsewhere if self._shared is not None else None,
        )
        self._admin = AdminSocket(options.admin_socket, self._page) if options.admin_socket is not None else None
        self._parsing = Parsing(lambda: self._front.catalog, options.max_body_bytes)
        sizes = BodySizes(lambda: accounts.limits.query_rows, options.max_body_bytes, options.max_json_bytes)
        pages = OpenPages(self._metadata, self._metrics, options.access)
        rest = Rest(self._front, self._metadata, self._metrics, sizes, self._parsing, pages)
        self._http = HttpServer(rest, _http_limits(options))
        rpc = Rpc(self._front, self._metadata, self._metrics, sizes, self._parsing)
        self._rpc = GrpcServer(rpc, _grpc_limits(options))
        self._ticker: asyncio.Task | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the last configuration, connect to executors or the core, listen.

        Raises:
            CannotListen: an address cannot be used.
        """
        options = self._options
        if self._local is not None:
            config = self._local.load()
            if config is not None:
                self._adopt(config)
        else:
            self._link.start()
            await _prepared(lambda: self.ready)
        shared = self._link is not None
        await _listen("NEREUS_HTTP", self._http, options.host, options.port, shared, options.http_tls)
        await _listen("NEREUS_GRPC", self._rpc, options.grpc_host, options.grpc_port, shared, options.grpc_tls)
        if self._admin is not None:
            # Last: a process that answers here listens everywhere.
            await self._admin.start()
        self._ticker = asyncio.create_task(self._tick(), name="gateway-tick")
        logger.info("gateway_started", name=options.name, port=self.port, grpc_port=self._rpc.port)

    async def stop(self, grace_s: float = 3.0) -> int:
        """Stop accepting, finish queries for up to ``grace_s``, close all; returns how many were cut off."""
        await asyncio.gather(self._http.drain(grace_s), self._rpc.drain(grace_s))
        left = self._front.accounts.queries
        self._front.give_up(self._front.core.flights, "the gateway is stopping; try another or try again")
        await self._parsing.close()
        self._http.close()
        await self._rpc.close()
        if self._ticker is not None:
            self._ticker.cancel()
        self._second()
        if self._admin is not None:
            await self._admin.close()
        if self._shared is not None:
            self._shared.write(self._front.keys.asked)
        await (self._link.close() if self._link is not None else self._local.close())
        logger.info("gateway_stopped", cut_off=left)
        return left

    @property
    def port(self) -> int:
        """The port that it listens on for HTTP."""
        return self._http.port

    @property
    def ready(self) -> bool:
        """Every planned application has a warm variant."""
        return not self._metadata.not_ready()

    # --- configuration ------------------------------------------------------------------------------------------------

    def configure(self, config: GatewayConfig) -> None:
        """Replace the configuration."""
        if self._local is not None and self._local.configure(config):
            self._adopt(config)

    def _adopt(self, config: GatewayConfig) -> None:
        """Use a configuration's applications and keys."""
        before = self._front.catalog
        self._http.forget()
        self._front.accounts.limits = _limits(self._options, len(config.plan.devices))
        self._front.catalog = Catalog(config)
        self._front.keys.configure(config.key_limits)
        self._front.accounts.forget(before.applications.keys() - self._front.catalog.applications.keys())
        self._rpc.readmit()

    def _status(self) -> CoreStatus:
        return self._link.status() if self._link is not None else self._local.rollout.status()

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """At the end of each slot of arrivals: time limits, bursts; once a second: statistics."""
        second = time.monotonic() + 1.0
        while True:
            await asyncio.sleep(BurstDetector.slot_ends_in(time.monotonic()) + AFTER_S)
            try:
                now = time.monotonic()
                if self._local is not None:
                    self._local.rollout.tick(now)
                    self._local.reports.slot(now)
                else:
                    self._link.sweep(now)
                    self._shared.write(self._front.keys.asked)
                if now >= second:
                    second = max(second + 1.0, now)
                    self._second()
            except Exception:
                logger.exception("tick_failed")

    def _second(self) -> None:
        stats = self._front.accounts.take_second(self._front.catalog.applications)
        siblings = self._options.siblings
        keys, fronts = ({}, 1) if self._shared is None else (self._shared.keys_elsewhere(), len(siblings.totals))
        self._front.keys.second(self._front.accounts.totals, keys, fronts)
        if self._local is not None:
            self._local.reports.second(stats)
            self._local.rollout.keep_executors()
        else:
            self._link.report(FrontStats(stats))

    def _page(self) -> bytes:
        self._metadata.refresh_metrics()
        return self._metrics.text()


class CoreProcess:
    """A core in a process of its own, with the fronts that connect to it.

    Args:
        socket: where it listens for fronts.
    """

    def __init__(self, options: GatewayOptions, socket: Path, send: Callable[[FromMember], None]) -> None:
        self._metrics = GatewayMetrics(f"{options.name}-core")
        self._core = LocalCore(options, self._metrics, send)
        self._fronts = Fronts(socket, self._core.rollout.core, self._core.rollout.status, self._page)
        self._ticker: asyncio.Task | None = None

    async def start(self) -> None:
        """Load the last configuration, connect to executors, listen for fronts."""
        config = self._core.load()
        if config is not None:
            self._fronts.configure(config)
            await _prepared(lambda: not self._core.rollout.status().cold)
        await self._fronts.start()
        self._ticker = asyncio.create_task(self._tick(), name="core-tick")
        logger.info("core_started")

    def configure(self, config: GatewayConfig) -> None:
        """Replace the configuration of core and fronts."""
        if self._core.configure(config):
            self._fronts.configure(config)
            self._fronts.report()

    async def stop(self, grace_s: float = 3.0) -> int:
        """Close all; fronts end their queries themselves."""
        left = len(self._core.rollout.core.flights)
        if self._ticker is not None:
            self._ticker.cancel()
        self._core.reports.second(merged(self._fronts.take_stats()))
        await self._fronts.close()
        await self._core.close()
        logger.info("core_stopped", cut_off=left)
        return left

    async def _tick(self) -> None:
        """At the end of each slot of arrivals: time limits, bursts, status; once a second: statistics."""
        second = time.monotonic() + 1.0
        while True:
            await asyncio.sleep(BurstDetector.slot_ends_in(time.monotonic()) + AFTER_S)
            try:
                now = time.monotonic()
                self._core.rollout.tick(now)
                self._core.reports.slot(now)
                self._fronts.report()
                if now >= second:
                    second = max(second + 1.0, now)
                    self._core.reports.second(merged(self._fronts.take_stats()))
                    self._core.rollout.keep_executors()
            except Exception:
                logger.exception("tick_failed")

    def _page(self) -> bytes:
        status = self._core.rollout.status()
        self._metrics.refresh(status, status.adopted is not None and not status.cold, core_here=True)
        return self._metrics.text()


async def _prepared(ready: Callable[[], bool]) -> None:
    """Wait until this process can serve, or :data:`PREPARE_S`: until then, clients reach other fronts, or wait."""
    end = time.monotonic() + PREPARE_S
    while not ready() and time.monotonic() < end:
        await asyncio.sleep(LOOK_EVERY_S)


def _connections() -> int:
    """Connections to each of the two ports that file descriptors suffice for."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, (soft - FREE_DESCRIPTORS) // 2))


def _http_limits(options: GatewayOptions) -> Http1Limits:
    return Http1Limits(
        body_bytes=options.max_body_bytes,
        buffered_bytes=max(MIN_BUFFERED_BYTES, 4 * options.max_body_bytes),
        connections=_connections(),
        address_connections=options.address_connections,
    )


def _grpc_limits(options: GatewayOptions) -> GrpcLimits:
    return GrpcLimits(
        message_bytes=options.max_body_bytes,
        buffered_bytes=max(MIN_BUFFERED_BYTES, 4 * options.max_body_bytes),
        http2=Http2Limits(connections=_connections(), address_connections=options.address_connections),
    )


def _limits(options: GatewayOptions, devices: int) -> Limits:
    """Twice what all devices together may queue: beyond that, queries would only wait to be refused."""
    return Limits(
        queries=MAX_QUERIES,
        rows=2 * options.queue_rows * max(1, devices),
        bytes=max(MIN_BYTES, 4 * options.max_body_bytes),
        query_rows=options.queue_rows,
    )
