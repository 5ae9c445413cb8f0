"""A gateway put together: edges, what they ask, and the cores that may decide."""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import Callable

from workers import log
from workers.addresses import Address
from workers.metrics_access import MetricsAccess
from workers.net.grpc import GrpcServer
from workers.net.http1 import HttpServer
from workers.net.limits import GrpcLimits, Http1Limits, Http2Limits
from workers.net.waiting import wait_until
from workers.protocol.control import FromMember, GatewayConfig
from workers.protocol.frames import Hello
from workers.protocol.gateways import FrontStats, FrontTotals
from workers.settings import Settings
from workers.trust.endpoints import Endpoint
from workers.trust.member import stored_key

from .accounts import Accounts, Limits
from .admin_socket import AdminSocket
from .body_sizes import BodySizes
from .bursts import BurstDetector
from .catalog import Catalog
from .config_file import ConfigFile
from .core_here import PREPARE_S, CoreHere
from .core_link import CoreLink
from .cores import Cores
from .errors import Unavailable
from .front import Front
from .metadata import Metadata
from .metrics import GatewayMetrics
from .open_pages import OpenPages
from .options import CannotListen, GatewayOptions
from .parsing import Parsing
from .remote_front import Fronts
from .rest import Rest
from .rollout import RETIRE_S, Rollout
from .rpc import Rpc

logger = log.get("gateway")

#: queries in flight at once in one front, whatever their size
MAX_QUERIES = 20_000
#: bytes of inputs that may be in flight at once, at least
MIN_BYTES = 512 * 1024 * 1024
#: connections to each port, and file descriptors that stay free for executors, files and other processes
MAX_CONNECTIONS, FREE_DESCRIPTORS = 4096, 64
#: seconds after which a gateway with another key than members of other boxes know listens, also if no core takes it
UNKNOWN_S = 30.0
#: seconds between the end of a slot of arrivals and its tick, since an event loop's timers count milliseconds
AFTER_S = 0.002
#: seconds that kept connections stay open while a gateway stops whose clients have another one
LINGER_S = 1.0
#: bytes of requests that may be read at once over HTTP, and over gRPC, at least
MIN_BUFFERED_BYTES = 256 * 1024 * 1024


async def _listen(
    setting: str, server: HttpServer | GrpcServer, address: Address, shared: bool, tls: ssl.SSLContext | None
) -> None:
    try:
        await server.start(address.host, address.port, shared, tls)
    except OSError as error:
        raise CannotListen(setting, str(address), str(error)) from None


class Gateway:
    """Edges, a front, and the core: its own, or that of the box's first gateway.

    Args:
        send: takes messages for the control plane and never blocks.
        control_state: says in a word how the link to the control plane is.
    """

    def __init__(
        self,
        options: GatewayOptions,
        send: Callable[[FromMember], None] = lambda message: None,
        control_state: Callable[[], str] = lambda: "none",
    ):
        self._options = options
        settings = options.settings
        self._metrics = metrics = GatewayMetrics(options.name if options.several else None)
        accounts = Accounts(metrics, _limits(settings, 0))
        self._front = front = Front(accounts)
        self._file = ConfigFile(options.file)
        self._here: CoreHere | None = None
        if options.number == 1:
            rollout = Rollout(options.member, settings.queue_rows, metrics, options.tls_client)
            self._here = CoreHere(options, rollout, self._file, send)
            self._cores = Cores(front, options.member, rollout, self._link_to)
            self._totals: Fronts | CoreLink = self._here.fronts
            rollout.on_changed = self._lead_changed
        else:
            endpoint = Endpoint(f"unix:{settings.gateway_core_socket}")
            first = self._totals = CoreLink(endpoint, Hello("front", options.name), front, self._adopt)
            self._cores = Cores(front, options.member, first, self._link_to)
        self._linking: set[asyncio.Task] = set()
        self._metadata = Metadata(
            options.name,
            front,
            lambda: self._cores.chosen.status(),
            control_state,
            lambda: self._totals.elsewhere.applications,
        )
        self._admin = AdminSocket(settings.gateway_socket(options.number), self._page)
        self._parsing = Parsing(lambda: front.catalog, settings.max_request_bytes)
        sizes = BodySizes(lambda: accounts.limits.query_rows, settings.max_request_bytes, settings.max_json_bytes)
        pages = OpenPages(self._metadata, self._page, MetricsAccess.of(settings))
        rest = Rest(front, self._metadata, metrics, sizes, self._parsing, pages)
        self._http = HttpServer(rest, _http_limits(settings))
        self._began = time.monotonic()
        self._calls = Rpc(front, self._metadata, metrics, sizes, self._parsing)
        self._rpc = GrpcServer(self._calls, _grpc_limits(settings))
        self._ticker: asyncio.Task | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, join: Callable[[], None] = lambda: None) -> None:
        """Load the last configuration, connect to executors or the core, listen.

        Args:
            join: begins the link to the control plane; called before this listens if others have to learn its key.

        Raises:
            CannotListen: an address cannot be used.
        """
        options, settings = self._options, self._options.settings
        stored = self._file.load()
        if self._here is not None:
            await self._here.start(stored)
        else:
            self._totals.start()
        if stored is not None:
            self._adopt(stored)
        self._ticker = asyncio.create_task(self._tick(), name="gateway-tick")
        if options.several:
            await wait_until(lambda: self.ready, PREPARE_S)
        if stored is not None and _unknown(options, stored):
            join()
            await self._known()
        await _listen("NEREUS_GRPC", self._rpc, settings.grpc, options.several, options.grpc_tls)
        # After gRPC: who asks whether this is ready, asks by HTTP.
        await _listen("NEREUS_HTTP", self._http, settings.http, options.several, options.http_tls)
        # Last: a process that answers here listens everywhere.
        await self._admin.start()
        logger.info("gateway_started", name=options.name, port=self.port, grpc_port=self._rpc.port)

    def _taken(self) -> bool:
        # A core may lead with devices of its own box alone that were drained.
        return self._cores.elsewhere or (self._cores.chosen.leads and self.ready)

    async def _known(self) -> None:
        """Wait until a core takes this gateway's queries: clients have another gateway until then."""
        logger.info("key_not_listed", name=self._options.name, next="listens once a core takes its queries")
        if not await wait_until(self._taken, UNKNOWN_S):
            logger.warning("no_core_found", name=self._options.name, after_s=UNKNOWN_S, next="listens all the same")

    async def stop(self, grace_s: float = 3.0) -> int:
        """Stop accepting, finish queries, hand over to the next core, and close all."""
        linger_s = 0.0
        if self._cores.alternatives:
            grace_s, linger_s = grace_s - RETIRE_S, LINGER_S
        drains = [self._http.drain(grace_s, linger_s), self._rpc.drain(grace_s)]
        if self._here is not None:
            drains.append(self._here.drain(grace_s))
        await asyncio.gather(*drains)
        left = self._front.accounts.queries
        self._front.give_up(self._cores.flights, Unavailable.STOPPING)
        await self._parsing.close()
        self._http.close()
        await self._rpc.close()
        if self._ticker is not None:
            self._ticker.cancel()
        self._second()
        await self._admin.close()
        await asyncio.gather(*self._linking, return_exceptions=True)
        if self._here is not None:
            await self._here.close()
        await self._cores.close()
        logger.info("gateway_stopped", cut_off=left)
        return left

    @property
    def port(self) -> int:
        return self._http.port

    @property
    def ready(self) -> bool:
        return not self._metadata.not_ready()

    # --- configuration ------------------------------------------------------------------------------------------------

    def configure(self, config: GatewayConfig) -> None:
        if self._here.configure(config):
            self._adopt(config)

    async def certified(self, pem: bytes) -> None:
        await self._here.fronts.certified(pem)

    def _adopt(self, config: GatewayConfig) -> None:
        before = self._front.catalog
        self._http.forget()
        self._front.accounts.limits = _limits(self._options.settings, len(config.plan.devices))
        self._front.catalog = Catalog(config)
        self._front.keys.configure(config.key_limits)
        self._front.accounts.forget(before.applications.keys() - self._front.catalog.applications.keys())
        self._rpc.readmit()
        linking = asyncio.get_running_loop().create_task(self._cores.configure(config), name="link-cores")
        self._linking.add(linking)
        linking.add_done_callback(self._linking.discard)

    def _lead_changed(self) -> None:
        self._cores.choose()
        self._here.fronts.report()

    def _link_to(self, endpoint: Endpoint) -> CoreLink:
        return CoreLink(endpoint, Hello("front", self._options.member), self._front, client=self._options.tls_client)

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        second = time.monotonic() + 1.0
        while True:
            await asyncio.sleep(BurstDetector.slot_ends_in(time.monotonic()) + AFTER_S)
            try:
                now = time.monotonic()
                self._slot(now)
                if now >= second:
                    second = max(second + 1.0, now)
                    self._second()
            except Exception:
                logger.exception("tick_failed")

    def _slot(self, now: float) -> None:
        self._cores.tick(now)
        if self._here is not None:
            self._here.slot(now)

    def _second(self) -> None:
        self._calls.second()
        accounts, keys, chosen = self._front.accounts, self._front.keys, self._cores.chosen
        stats = accounts.take_second(self._front.catalog.applications)
        self._totals.share(FrontTotals(accounts.totals, keys.asked, self._began))
        keys.second(accounts.totals, self._totals.elsewhere.keys, self._options.settings.gateways)
        if isinstance(chosen, CoreLink):
            # Demand counts where it is decided on.
            chosen.report(FrontStats(stats))
            stats = {}
        if self._here is not None:
            self._here.second(stats, chosen.status())

    def _page(self) -> bytes:
        status = self._cores.chosen.status()
        return self._metrics.text(status, self._front.accounts.queries, self.ready, self._here is not None)


def _unknown(options: GatewayOptions, config: GatewayConfig) -> bool:
    """Return whether others know another key than this gateway has by now."""
    if options.settings.core is None:
        return False
    listed = {peer.name: peer.key_hash for peer in config.peers if peer.role == "gateway"}
    own = listed.pop(options.member, "")
    return bool(listed) and own != stored_key(options.identity)


def _connections() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, (soft - FREE_DESCRIPTORS) // 2))


def _http_limits(settings: Settings) -> Http1Limits:
    return Http1Limits(
        body_bytes=settings.max_request_bytes,
        buffered_bytes=max(MIN_BUFFERED_BYTES, 4 * settings.max_request_bytes),
        connections=_connections(),
        address_connections=settings.address_connections,
    )


def _grpc_limits(settings: Settings) -> GrpcLimits:
    return GrpcLimits(
        message_bytes=settings.max_request_bytes,
        buffered_bytes=max(MIN_BUFFERED_BYTES, 4 * settings.max_request_bytes),
        http2=Http2Limits(connections=_connections(), address_connections=settings.address_connections),
    )


def _limits(settings: Settings, devices: int) -> Limits:
    """Return the limits of a front.

    Rows in flight are at most twice what all devices together may queue: beyond that, queries would only wait to be
    refused.
    """
    return Limits(
        queries=MAX_QUERIES,
        rows=2 * settings.queue_rows * max(1, devices),
        bytes=max(MIN_BYTES, 4 * settings.max_request_bytes),
        query_rows=settings.queue_rows,
    )
