"""A gateway: routes, executors, query path and edges put together. Configuration comes in by :meth:`configure`."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workers import disk, log
from workers.batching.latency import LatencyModel
from workers.dispatch.routing import LATE_BINDING
from workers.dispatch.routing.switch import SwitchingRouter
from workers.dispatch.stacks import STACKS
from workers.protocol.control import Burst, FromMember, GatewayConfig, GatewayStats, Overload
from workers.protocol.endings import Ending
from workers.protocol.frames import ExecutorState, Moved, Refusal, Result, Results
from workers.protocol.specs import ApplicationStats

from .accounts import Limits
from .bursts import BurstDetector
from .catalog import Catalog
from .dataplane import DataPlane
from .executors import Executors
from .http1 import HttpServer
from .marked import MarkedMetrics
from .menus import Menus
from .metadata import Metadata
from .metrics import GatewayMetrics
from .own import OwnSocket
from .plan import Adoption
from .rest import Rest
from .rpc import Rpc
from .rpc_server import RpcServer
from .stats import Statistics
from .totals import SharedTotals

logger = log.get("gateway")

#: a tick comes so much after its slot of arrivals has ended: an event loop's timers count milliseconds
AFTER_S = 0.002
#: one of several gateways takes connections once it can serve, or after so many seconds
PREPARE_S, LOOK_EVERY_S = 1.0, 0.01
#: share of a second's rows, and number of them, from which refusals are called an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3
#: queries under way at once in one gateway, whatever their size
MAX_QUERIES = 20_000
#: bytes of inputs that may be under way at once, at least
MIN_BYTES = 512 * 1024 * 1024
#: bytes of requests that may be read at once over HTTP, and over gRPC, at least
MIN_BUFFERED_BYTES = 256 * 1024 * 1024


class CannotListen(OSError):
    """An address that ``setting`` names cannot be used."""

    def __init__(self, setting: str, address: str, reason: str):
        super().__init__(f"{setting}={address}: {reason}")
        self.setting, self.address, self.reason = setting, address, reason


@dataclass(frozen=True)
class Beside:
    """One of several gateways on a box. ``socket``: its own; ``totals``: files of all, ``own`` of which is its own."""

    socket: Path
    totals: tuple[Path, ...]
    own: int


@dataclass(frozen=True)
class GatewayOptions:
    """What a gateway needs of the settings. ``host``, ``port``: V2 HTTP; ``grpc_host``, ``grpc_port``: V2 gRPC;
    ``file``: where the configuration is kept; ``queue_rows``: rows that may wait for a device, and the most that one
    query may have; ``max_body_bytes``: the largest HTTP body or gRPC message; ``beside``: None for a lone gateway."""

    name: str
    host: str
    port: int
    grpc_host: str
    grpc_port: int
    file: Path
    queue_rows: int = 512
    max_body_bytes: int = 16 * 1024 * 1024
    adopt_limit_s: float = 5.0
    beside: Beside | None = None


async def _listen(setting: str, server: HttpServer | RpcServer, host: str, port: int, shared: bool) -> None:
    try:
        await server.start(host, port, shared)
    except OSError as error:
        raise CannotListen(setting, f"{host}:{port}", str(error)) from None


class Gateway:
    """One gateway. ``send`` takes messages for the control plane and never blocks; ``control_state`` tells in a word
    how the link to it is.

    A gateway that finds a configuration in its file serves at once; :meth:`configure` replaces it.
    """

    def __init__(
        self,
        options: GatewayOptions,
        send: Callable[[FromMember], None] = lambda message: None,
        control_state: Callable[[], str] = lambda: "none",
    ):
        self._options = options
        self._send = send
        self._statistics = Statistics()
        self._bursts = BurstDetector()
        # Gateways that choose by chance must not all choose alike.
        self._router = SwitchingRouter(seed=zlib.crc32(options.name.encode()))
        self._adoption = Adoption(options.adopt_limit_s)
        self._menus = Menus()
        beside = options.beside
        self._metrics = GatewayMetrics() if beside is None else MarkedMetrics(options.name)
        self._totals = SharedTotals(beside.totals, beside.own) if beside is not None else None
        self._executors = Executors(options.name, self)
        self._dataplane = DataPlane(
            self._router, self._executors, self._statistics, self._bursts, self._metrics, self._limits(0)
        )
        self._metadata = Metadata(
            options.name,
            self._dataplane,
            self._executors,
            self._adoption,
            self._statistics,
            self._metrics,
            control_state,
            self._totals.elsewhere if self._totals is not None else tuple,
        )
        self._own = OwnSocket(beside.socket, self._page) if beside is not None else None
        buffered_bytes = max(MIN_BUFFERED_BYTES, 4 * options.max_body_bytes)
        rest = Rest(self._dataplane, self._metadata, self._metrics, options.max_body_bytes)
        self._http = HttpServer(
            rest.handle,
            rest.preflight,
            rest.disconnected,
            rest.render_error,
            max_body_bytes=options.max_body_bytes,
            max_buffered_bytes=buffered_bytes,
        )
        rpc = Rpc(self._dataplane, self._metadata, self._metrics)
        self._rpc = RpcServer(rpc, options.max_body_bytes, buffered_bytes)
        self._ticker: asyncio.Task | None = None
        self._moved: int | None = None
        self._draining: dict[str, bool] = {}

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the last configuration, connect to its executors, listen.

        Raises:
            CannotListen: an address cannot be used.
        """
        self._load()
        options = self._options
        shared = options.beside is not None
        if shared:
            await self._prepare()
        await _listen("NEREUS_HTTP", self._http, options.host, options.port, shared)
        await _listen("NEREUS_GRPC", self._rpc, options.grpc_host, options.grpc_port, shared)
        if self._own is not None:
            # Last: who reaches it may take it that this process listens everywhere.
            await self._own.start()
        self._ticker = asyncio.create_task(self._tick(), name="gateway-tick")
        logger.info("gateway_started", name=options.name, port=self.port, grpc_port=self._rpc.port)

    async def _prepare(self) -> None:
        """Be able to serve before the kernel gives this process connections that others would get instead."""
        end = time.monotonic() + PREPARE_S
        while not self.ready and time.monotonic() < end:
            await asyncio.sleep(LOOK_EVERY_S)

    async def stop(self, grace_s: float = 3.0) -> int:
        """Accept nothing more, finish what is under way for up to ``grace_s``, close all; how many were cut off."""
        await asyncio.gather(self._http.drain(grace_s), self._rpc.drain(grace_s))
        left = self._dataplane.accounts.queries
        self._dataplane.give_up()
        self._http.close()
        await self._rpc.close()
        if self._ticker is not None:
            self._ticker.cancel()
        self._report()
        if self._own is not None:
            await self._own.close()
        if self._totals is not None:
            self._totals.write(self._statistics.totals)
            self._totals.close()
        await self._executors.close()
        self._dataplane.close()
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
        """Replace everything that the gateway knows; routes follow make-before-break. Kept on disk."""
        if self._dataplane.catalog.configured and config == self._dataplane.catalog.config:
            return
        self._apply(config)
        try:
            disk.write_private(self._options.file, msgspec.json.encode(config))
        except OSError as error:
            # It serves all the same; only a restart without control plane would go back to an older plan.
            logger.error("config_not_stored", path=str(self._options.file), reason=str(error))

    def _limits(self, devices: int) -> Limits:
        """Twice what all devices together may queue: beyond that, a query could only wait to be refused."""
        options = self._options
        return Limits(
            queries=MAX_QUERIES,
            rows=2 * options.queue_rows * max(1, devices),
            bytes=max(MIN_BYTES, 4 * options.max_body_bytes),
            query_rows=options.queue_rows,
        )

    def _load(self) -> None:
        try:
            data = disk.read(self._options.file)
            if data is not None:
                self._apply(msgspec.json.decode(data, type=GatewayConfig))
                logger.info("config_loaded", path=str(self._options.file))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.error("config_unreadable", path=str(self._options.file), reason=str(error))

    def _apply(self, config: GatewayConfig) -> None:
        now = time.monotonic()
        before = self._dataplane.catalog
        catalog = Catalog(config)
        self._http.forget()
        self._dataplane.accounts.limits = self._limits(len(config.plan.devices))
        self._metrics.forget(before.applications.keys() - catalog.applications.keys())
        self._menus.configure(catalog.applications, self._options.queue_rows)
        self._dataplane.configure(catalog, now)
        if not before.configured or before.config.plan != config.plan:
            self._bursts.set_plan(config.plan.bands, config.plan.version, now)
            self._follow(config.plan.stack, now)
            self._adoption.offer(config.plan, now)
            self._menus.plan(config.plan)
            logger.info("plan_offered", version=config.plan.version, devices=len(config.plan.devices))
        if before.configured and before.config.gateways != config.gateways:
            self._bursts.restart(now)
            self._bind()
        self._step(now)

    def _follow(self, name: str, now: float) -> None:
        stack = STACKS.get(name)
        if stack is None:
            # A newer control plane knows more than this gateway: serving goes on as it was.
            logger.error("stack_unknown", stack=name, kept=self._router.name)
        elif self._router.switch(stack.routing, now):
            logger.info("routing_switched", stack=name, routing=stack.routing)
        self._bind()

    def _bind(self) -> None:
        """Hold queries only where nobody else does. A dispatcher takes a device's time for its own, and what others
        grant there makes it late and too accurate; routers get by with what executors tell. What is held already is
        granted all the same."""
        alone = self._options.beside is None and self._dataplane.catalog.config.gateways == 1
        late_binding = alone and self._router.name == LATE_BINDING
        if late_binding != self._dataplane.late_binding:
            self._dataplane.late_binding = late_binding
            logger.info("binding_changed", late_binding=late_binding, routing=self._router.name)

    def _step(self, now: float) -> None:
        """Let routes follow what is warm."""
        adoption = self._adoption
        catalog = self._dataplane.catalog
        for application in adoption.step(now):
            self._tell_service(application)
            logger.info("routes_moved", application=application, version=adoption.target.version)
        self._router.set_routes(adoption.routes)
        self._menus.moved(adoption.moving)
        self._offer(now)
        self._keep_executors(catalog)
        if adoption.adopted is not None and adoption.adopted != self._moved:
            self._moved = adoption.adopted
            self._executors.broadcast(Moved(adoption.adopted))
            logger.info("plan_adopted", version=adoption.adopted)

    def _offer(self, now: float) -> None:
        """Offer what is warm. A device that is draining takes only what no other device could answer."""
        states = {device: state for device, state in self._executors.states().items() if state is not None}
        menus = {device: self._menus.of(device, state.warm) for device, state in states.items()}
        elsewhere = {one.application for device, some in menus.items() if not states[device].draining for one in some}
        for device, some in menus.items():
            if states[device].draining:
                some = {one: menu for one, menu in some.items() if one.application not in elsewhere}
            self._dataplane.offer(device, some, now)

    def _keep_executors(self, catalog: Catalog) -> None:
        """Connections to the plan's devices, and to those that old routes or queries under way still need."""
        wanted = {device.device: device.endpoint for device in catalog.config.plan.devices if device.endpoint}
        needed = self._adoption.devices() | {device for device, count in self._dataplane.outstanding.items() if count}
        for device in needed - wanted.keys():
            executor = self._executors.get(device)
            if executor is not None:
                wanted[device] = executor.endpoint
        self._executors.keep(wanted)

    def _tell_service(self, application: str) -> None:
        """Tell the router how each device serves the application: by its resident with the largest share of time."""
        chosen = {}
        for device, resident in self._dataplane.catalog.residents(application):
            if device not in chosen or resident.time_share > chosen[device].time_share:
                chosen[device] = resident
        for device, resident in chosen.items():
            points = [(point.batch, point.p95_s) for point in resident.profile if point.p95_s > 0]
            if points:
                self._router.service(device, application, LatencyModel(points), max(1, resident.max_batch))

    # --- executors' listener ------------------------------------------------------------------------------------------

    def executor_state(self, device: str, state: ExecutorState) -> None:
        """An executor told its state."""
        now = time.monotonic()
        warm: dict[str, set[int]] = {}
        for variant in state.warm:
            warm.setdefault(variant.application, set()).add(variant.id)
        known = {application: frozenset(ids) for application, ids in warm.items()}
        first = not self._adoption.knows(device)
        changed = self._adoption.warm(device, known) or state.draining is not self._draining.get(device)
        self._draining[device] = state.draining
        if first:
            self._router.up(device)
            logger.info("executor_up", device=device, plan_version=state.plan_version, warm=len(state.warm))
            if self._moved is not None and self._moved == self._adoption.adopted:
                self._executors.send(device, Moved(self._moved))
        self._router.state(device, state.queued, state.busy_s, state.draining, now)
        if changed:
            self._step(now)
        self._dataplane.heard(device, state, now)

    def executor_result(self, device: str, result: Result, body: memoryview) -> None:
        """See :meth:`DataPlane.result`."""
        self._dataplane.result(device, result, body)

    def executor_results(self, device: str, results: Results, body: memoryview) -> None:
        """See :meth:`DataPlane.results`."""
        self._dataplane.results(device, results, body)

    def executor_refusal(self, device: str, refusal: Refusal) -> None:
        """See :meth:`DataPlane.refusal`."""
        self._dataplane.refusal(device, refusal)

    def executor_lost(self, device: str, reason: str) -> None:
        """An executor is gone: route around it first, then re-route what it had."""
        logger.warning("executor_lost", device=device, reason=reason)
        self._router.down(device)
        self._draining.pop(device, None)
        self._adoption.gone(device)
        self._step(time.monotonic())
        self._dataplane.lost(device, reason)

    def executor_ended(self, device: str, ending: Ending | None) -> None:
        """See :meth:`DataPlane.ended`."""
        self._dataplane.ended(device, ending)

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """At the end of each slot of arrivals: time limits of a plan's adoption, bursts; once a second: statistics."""
        second = time.monotonic() + 1.0
        while True:
            await asyncio.sleep(self._bursts.slot_ends_in(time.monotonic()) + AFTER_S)
            try:
                now = time.monotonic()
                self._dataplane.sweep(now)
                if now >= self._adoption.due():
                    self._step(now)
                self._watch_demand(now)
                if self._totals is not None:
                    self._totals.write(self._statistics.totals)
                if now >= second:
                    second = max(second + 1.0, now)
                    self._tell_overloads(self._report())
                    self._keep_executors(self._dataplane.catalog)
            except Exception:
                logger.exception("tick_failed")

    def _report(self) -> dict[str, ApplicationStats]:
        """Tell the control plane of the second that ends now."""
        stats = self._statistics.take(list(self._dataplane.catalog.applications))
        held = self._dataplane.catalog.config
        self._send(
            GatewayStats(
                applications=stats,
                ready=self.ready,
                serving=tuple(name for name in stats if self._adoption.routes.get(name)),
                plan_version=held.plan.version,
                config_hash=held.hash,
            )
        )
        return stats

    def _page(self) -> bytes:
        self._metadata.refresh_metrics()
        return self._metrics.text()

    def _watch_demand(self, now: float) -> None:
        if self._dataplane.catalog.config.gateways > 1:
            report = self._bursts.report(now)
            if report is not None:
                self._send(report)
            return
        for burst in self._bursts.check(now):
            self._burst(burst)

    def _tell_overloads(self, stats: dict[str, ApplicationStats]) -> None:
        """Where more was refused than chance explains, a new plan may help, as where an executor refuses."""
        for name, refused in self._dataplane.take_refused().items():
            arrived = stats[name].arrived_rows if name in stats else 0
            if refused >= max(OVERLOAD_ROWS, OVERLOAD_SHARE * arrived):
                self._send(Overload(device="", application=name, arrived=max(arrived, refused), refused=refused))

    def _burst(self, burst: Burst) -> None:
        logger.info("burst", application=burst.application, rate=round(burst.rate, 2), plan=burst.plan_version)
        self._send(burst)
