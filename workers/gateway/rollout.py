"""Follows plans make-before-break: routes, options of devices, connections.

Connects the core to the reports of its executors and to the configuration of the control plane.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from workers import log, machine
from workers.dispatch.bindings import UnknownStack
from workers.protocol.control import GatewayConfig
from workers.protocol.frames import ExecutorState, Moved
from workers.protocol.gateways import CoreStatus, DeviceStatus
from workers.protocol.specs import DevicePlan, PeerSpec
from workers.trust.endpoints import Endpoint, TlsClient
from workers.trust.member import PeerIdentity

from .adoption import Adoption
from .bursts import BurstDetector
from .catalog import Catalog
from .core import Core
from .device_options import DeviceOptions
from .executors import Executors
from .front import Front
from .in_flight import InFlightQuery
from .metrics import GatewayMetrics

logger = log.get("gateway.rollout")

#: seconds that devices may take to answer once their core stops, and between two looks whether they have
RETIRE_S, RETIRE_EVERY_S = 1.0, 0.005


class Rollout:
    """A core with its devices, of which it gets the reports.

    Args:
        name: the gateway's, for executors.
        queue_rows: the most rows that one batch may have.
        client: for devices of other boxes.
    """

    def __init__(self, name: str, queue_rows: int, metrics: GatewayMetrics, client: TlsClient | None = None) -> None:
        self.bursts = BurstDetector()
        self.executors = Executors(name, self, client)
        self.core = Core(self.executors, self.bursts, metrics)
        self.config: GatewayConfig | None = None
        self.name = name
        self._machine = machine.identity()
        self._nodes: dict[str, PeerSpec] = {}
        self._queue_rows = queue_rows
        self._adoption = Adoption()
        self._options = DeviceOptions()
        self._alone = True
        self._led = False
        #: called when this core begins or ceases to lead
        self.on_changed: Callable[[], object] = lambda: None
        self._moved: int | None = None

    # --- configuration ------------------------------------------------------------------------------------------------

    def configure(self, config: GatewayConfig) -> None:
        """Replace applications and plan; applications move to it as devices get warm."""
        now = time.monotonic()
        before, self.config = self.config, config
        self._nodes = {peer.name: peer for peer in config.peers if peer.role == "node"}
        ranks = {peer.name: peer.rank for peer in config.peers if peer.role == "gateway"}
        self._alone = len(ranks) < 2
        self.executors.first = ranks.get(self.name, 0) <= min(ranks.values(), default=0)
        catalog = Catalog(config)
        self._options.configure(catalog.applications, self._queue_rows)
        self.core.configure(catalog, now)
        if before is None or before.plan != config.plan:
            self.bursts.set_plan(config.plan.bands, config.plan.version, now)
            try:
                self.core.use(config.plan.stack, now)
            except UnknownStack as error:
                # From a newer control plane: keep the present stack.
                logger.error("stack_unknown", reason=str(error))
            self._adoption.set_target(config.plan, now)
            self._options.plan(config.plan)
            logger.info("plan_received", version=config.plan.version, devices=len(config.plan.devices))
        self._step(now)

    def tick(self, now: float) -> None:
        self.core.sweep(now)
        self.executors.look_after_leases(now, self.core.outstanding)
        if self.core.network.transfers_changed:
            self.core.network.transfers_changed = False
            self._set_options(now)
        adoption = self._adoption
        if now >= adoption.due() or (adoption.adopted is None and self._not_in_use() != adoption.not_in_use):
            self._step(now)

    def keep_executors(self) -> None:
        """Connect to the plan's devices, and to those that old routes or queries need."""
        if self.config is None:
            return
        endpoints = {device.device: self._endpoint(device) for device in self.config.plan.devices}
        wanted = {device: endpoint for device, endpoint in endpoints.items() if endpoint is not None}
        needed = self._adoption.devices() | {device for device, count in self.core.outstanding.items() if count}
        for device in needed - wanted.keys():
            executor = self.executors.get(device)
            # One that another core has, or nobody, stays with none: no core's newest plan may name it.
            if executor is not None and executor.state is not None:
                wanted[device] = executor.endpoint
        self.executors.keep(wanted)

    def _endpoint(self, device: DevicePlan) -> Endpoint | None:
        node = self._nodes.get(device.node)
        if node is None or not node.machine or node.machine == self._machine:
            return Endpoint(device.endpoint) if device.endpoint else None
        if not device.address:
            return None
        return Endpoint(f"tls:{device.address}", PeerIdentity("node", node.name, node.key_hash))

    @property
    def leads(self) -> bool:
        return self.executors.leads

    def hand_over(self, front: Front) -> list[InFlightQuery]:
        """Remove and return the front's queries that wait here, for another core."""
        now, held = time.monotonic(), [flight for flight in self.core.waiting if flight.front is front]
        for flight in held:
            self.core.withdraw(flight, now)
            flight.reservation = None
        return held

    def status(self) -> CoreStatus:
        adoption, core = self._adoption, self.core
        states = self.executors.states()
        outstanding = core.outstanding
        return CoreStatus(
            adopted=adoption.adopted,
            newest=adoption.target.version,
            cold=tuple(adoption.cold),
            name=self.name,
            leads=self.executors.leads,
            routes=adoption.routes,
            held=core.held,
            suspect_inputs=core.suspect_inputs,
            devices={
                device: DeviceStatus(
                    connected=state is not None,
                    plan_version=state.plan_version if state is not None else None,
                    warm=tuple((v.application, v.name) for v in state.warm) if state is not None else (),
                    draining=state is not None and state.draining,
                    outstanding=outstanding.get(device, 0),
                )
                for device, state in sorted(states.items())
            },
        )

    def _step(self, now: float) -> None:
        adoption = self._adoption
        for application in adoption.step(now, self._not_in_use()):
            logger.info("routes_moved", application=application, version=adoption.target.version)
        self._options.moved(adoption.moving)
        self._set_options(now)
        self.keep_executors()
        if adoption.adopted is not None and adoption.adopted != self._moved:
            self._moved = adoption.adopted
            self.executors.broadcast(Moved(adoption.adopted))
            logger.info("plan_adopted", version=adoption.adopted)

    def _not_in_use(self) -> frozenset[str]:
        """Connected devices that take no batches now, as they try a suspect for instance."""
        states = self.executors.states()
        return frozenset(device for device, state in states.items() if state and not self.core.in_use(device))

    def _set_options(self, now: float) -> None:
        states = {device: state for device, state in self.executors.states().items() if state is not None}
        option_sets = {
            device: self._options.of(device, state.warm, self.core.network.byte_s(device))
            for device, state in states.items()
        }
        elsewhere = {
            one.application for device, some in option_sets.items() if not states[device].draining for one in some
        }
        for device, some in option_sets.items():
            if states[device].draining:
                option_sets[device] = {one: made for one, made in some.items() if one.application not in elsewhere}
        self.core.set_options(option_sets, now)

    # --- reports of executors -----------------------------------------------------------------------------------------

    def executor_state(self, device: str, state: ExecutorState) -> None:
        now = time.monotonic()
        warm: dict[str, set[int]] = {}
        for variant in state.warm:
            warm.setdefault(variant.application, set()).add(variant.id)
        known = {application: frozenset(ids) for application, ids in warm.items()}
        first = not self._adoption.reported(device)
        self._adoption.warm(device, known, state.newest_plan)
        if first:
            self.executors.got(now)
            logger.info("executor_up", device=device, plan_version=state.plan_version, warm=len(state.warm))
            if self._moved is not None and self._moved == self._adoption.adopted:
                self.executors.send(device, Moved(self._moved))
            # Before the device is used: its options may be those of before it was lost.
            self._set_options(now)
        self.core.reported(device, state, now)
        # Last: the device must be in use before an application moves to it.
        self._step(now)
        self._look_who_leads()

    def executor_lost(self, device: str, reason: str) -> None:
        """Reroute the queries of a lost executor, with updated options of the others."""
        logger.warning("executor_lost", device=device, reason=reason)
        self._adoption.lost(device)
        self._step(time.monotonic())
        self.core.lost(device, reason)
        self._look_who_leads()

    def _look_who_leads(self) -> None:
        """Report at once where queries go when this core begins or ceases to lead."""
        leads = self.executors.leads
        if leads != self._led:
            self._led = leads
            self.bursts.restart(time.monotonic())
            self.on_changed()

    async def retire(self, report: Callable[[], None]) -> None:
        """Hand waiting queries and idle devices over to the next core, if the cluster has another gateway.

        Args:
            report: tells fronts the core's status: this one leads no more.
        """
        if not self._alone and self.executors.held:
            self.executors.retiring = True
            report()
            self.core.retire()
            until = time.monotonic() + RETIRE_S
            while self.executors.held and (now := time.monotonic()) < until:
                self.tick(now)
                await asyncio.sleep(RETIRE_EVERY_S)
            logger.info("core_retired", kept=sum(self.core.outstanding.values()))

    async def close(self) -> None:
        await self.executors.close()
        self.core.close()
