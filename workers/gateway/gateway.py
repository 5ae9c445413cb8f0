"""A gateway put together: edges, what they ask, and the cores that may decide."""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import Callable

from workers import log
from workers.net.grpc import GrpcServer
from workers.net.http1 import HttpServer
from workers.net.limits import GrpcLimits, Http1Limits, Http2Limits
from workers.net.waiting import wait_until
from workers.protocol.control import FromMember, GatewayConfig
from workers.protocol.frames import Hello
from workers.protocol.gateways import CoreStatus
from workers.trust.endpoints import Endpoint
from workers.trust.member import stored_key

from .accounts import Accounts, Limits
from .admin_socket import AdminSocket
from .body_sizes import BodySizes
from .bursts import BurstDetector
from .catalog import Catalog
from .core_link import CoreLink
from .core_sides import PREPARE_S, CoreBeside, CoreHere
from .cores import Cores
from .errors import Unavailable
from .front import Front
from .metadata import Metadata
from .metrics import GatewayMetrics
from .open_pages import OpenPages
from .options import CannotListen, GatewayOptions
from .parsing import Parsing
from .rest import Rest
from .rollout import RETIRE_S
from .rpc import Rpc
from .shared_stats import SharedStats

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
    setting: str, server: HttpServer | GrpcServer, host: str, port: int, shared: bool, tls: ssl.SSLContext | None
) -> None:
    try:
        await server.start(host, port, shared, tls)
    except OSError as error:
        raise CannotListen(setting, f"{host}:{port}", str(error)) from None


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
        local_gateways = options.local_gateways
        self._metrics = GatewayMetrics(options.name if local_gateways is not None else None)
        accounts = Accounts(self._metrics, _limits(options, 0))
        self._shared = SharedStats(local_gateways, accounts.totals)
        self._front = Front(accounts)
        first = local_gateways is None or local_gateways.own == 0
        self._side: CoreHere | CoreBeside
        if first:
            self._side = CoreHere(options, self._metrics, send)
        else:
            self._side = CoreBeside(options, self._front, self._adopt)
        self._cores = Cores(self._front, options.member, self._side.core, self._link_to)
        self._side.watch(self._cores.choose)
        self._linking: set[asyncio.Task] = set()
        self._metadata = Metadata(
            options.name, self._front, self._status, self._metrics, control_state, self._shared.elsewhere, first
        )
        self._admin = AdminSocket(options.admin_socket, self._page) if options.admin_socket is not None else None
        self._parsing = Parsing(lambda: self._front.catalog, options.max_body_bytes)
        sizes = BodySizes(lambda: accounts.limits.query_rows, options.max_body_bytes, options.max_json_bytes)
        pages = OpenPages(self._metadata, self._metrics, options.access)
        rest = Rest(self._front, self._metadata, self._metrics, sizes, self._parsing, pages)
        self._http = HttpServer(rest, _http_limits(options))
        self._calls = Rpc(self._front, self._metadata, self._metrics, sizes, self._parsing)
        self._rpc = GrpcServer(self._calls, _grpc_limits(options))
        self._ticker: asyncio.Task | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, join: Callable[[], None] = lambda: None) -> None:
        """Load the last configuration, connect to executors or the core, listen.

        Args:
            join: begins the link to the control plane; called before this listens if others have to learn its key.

        Raises:
            CannotListen: an address cannot be used.
        """
        options = self._options
        stored = await self._side.start()
        if stored is not None:
            self._adopt(stored)
        self._ticker = asyncio.create_task(self._tick(), name="gateway-tick")
        shared = options.local_gateways is not None
        if shared:
            await wait_until(lambda: self.ready, PREPARE_S)
        if stored is not None and _unknown(options, stored):
            join()
            await self._known()
        await _listen("NEREUS_GRPC", self._rpc, options.grpc_host, options.grpc_port, shared, options.grpc_tls)
        # After gRPC: who asks whether this is ready, asks by HTTP.
        await _listen("NEREUS_HTTP", self._http, options.host, options.port, shared, options.http_tls)
        if self._admin is not None:
            # Last: a process that answers here listens everywhere.
            await self._admin.start()
        logger.info("gateway_started", name=options.name, port=self.port, grpc_port=self._rpc.port)

    def _taken(self) -> bool:
        # A core may lead with devices of its own box alone that were drained.
        return self._cores.elsewhere or (self._cores.chosen.leads and self.ready)

    async def _known(self) -> None:
        """Wait until a core takes this gateway's queries.

        Clients have another gateway until then. The wait takes at most :data:`UNKNOWN_S` seconds.
        """
        logger.info("key_not_listed", name=self._options.name, next="listens once a core takes its queries")
        if not await wait_until(self._taken, UNKNOWN_S):
            logger.warning("no_core_found", name=self._options.name, after_s=UNKNOWN_S, next="listens all the same")

    async def stop(self, grace_s: float = 3.0) -> int:
        """Stop accepting, finish queries, hand over to the next core, and close all."""
        linger_s = 0.0
        if self._cores.alternatives:
            grace_s, linger_s = grace_s - RETIRE_S, LINGER_S
        drains = self._http.drain(grace_s, linger_s), self._rpc.drain(grace_s), self._side.drain(grace_s)
        await asyncio.gather(*drains)
        left = self._front.accounts.queries
        self._front.give_up(self._cores.flights, Unavailable.STOPPING)
        await self._parsing.close()
        self._http.close()
        await self._rpc.close()
        if self._ticker is not None:
            self._ticker.cancel()
        self._second()
        if self._admin is not None:
            await self._admin.close()
        self._shared.write(self._front.keys.asked)
        await asyncio.gather(*self._linking, return_exceptions=True)
        await self._cores.close()
        await self._side.close()
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
        """Replace the configuration; for the box's first gateway."""
        if self._side.configure(config):
            self._adopt(config)

    async def certified(self, pem: bytes) -> None:
        await self._side.certified(pem)

    def _adopt(self, config: GatewayConfig) -> None:
        before = self._front.catalog
        self._http.forget()
        self._front.accounts.limits = _limits(self._options, len(config.plan.devices))
        self._front.catalog = Catalog(config)
        self._front.keys.configure(config.key_limits)
        self._front.accounts.forget(before.applications.keys() - self._front.catalog.applications.keys())
        self._rpc.readmit()
        linking = asyncio.get_running_loop().create_task(self._cores.configure(config), name="link-cores")
        self._linking.add(linking)
        linking.add_done_callback(self._linking.discard)

    def _link_to(self, endpoint: Endpoint) -> CoreLink:
        hello = Hello("front", self._options.member)
        link = CoreLink(endpoint, hello, self._front, client=self._options.tls_client)
        link.on_changed = self._cores.choose
        return link

    def _status(self) -> CoreStatus:
        return self._cores.chosen.status()

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Look after queries behind each slot of arrivals, and report each second."""
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
        self._side.slot(now)
        self._shared.write(self._front.keys.asked)
        self._cores.sweep(now)

    def _second(self) -> None:
        self._calls.second()
        stats = self._front.accounts.take_second(self._front.catalog.applications)
        self._front.keys.second(self._front.accounts.totals, self._shared.keys_elsewhere(), self._shared.fronts)
        self._side.second(stats, self._cores.chosen)

    def _page(self) -> bytes:
        self._metadata.refresh_metrics()
        return self._metrics.text()


def _unknown(options: GatewayOptions, config: GatewayConfig) -> bool:
    """Return whether others know another key than this gateway has by now."""
    if options.core_address is None or options.identity is None:
        return False
    listed = {peer.name: peer.key_hash for peer in config.peers if peer.role == "gateway"}
    own = listed.pop(options.member, "")
    return bool(listed) and own != stored_key(options.identity)


def _connections() -> int:
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
    """Return the limits of a front.

    Rows in flight are at most twice what all devices together may queue: beyond that, queries would only wait to be
    refused.
    """
    return Limits(
        queries=MAX_QUERIES,
        rows=2 * options.queue_rows * max(1, devices),
        bytes=max(MIN_BYTES, 4 * options.max_body_bytes),
        query_rows=options.queue_rows,
    )
