"""The executor's parts put together: the device's state, start and stop."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from workers.confinement.limits import lower_priority
from workers.protocol.control import Drift
from workers.protocol.frames import ExecutorState, Relay, StateReport, StatsReport
from workers.protocol.specs import DeviceInfo, DeviceState

from .accounting import Accounts
from .batch_queue import BatchQueue
from .device_loop import DeviceLoop
from .exclusive import WorkKind
from .intake import Intake
from .loaded import DeviceResidents, Role
from .lull_checks import LullChecks
from .peers import Peers
from .replies import Replies
from .residency import Residency
from .runtime import Runtime

_LOADER_NICE = 10
#: characters of a state's detail, far below what its readers accept
_MOST_DETAIL = 8000


class DeviceService:
    """``intake`` takes batches from gateways, ``device_loop`` runs them, ``residency`` follows the plan."""

    def __init__(self, info: DeviceInfo, runtime: Runtime, peers: Peers, queue_rows: int, profile_share: float):
        self.info = info
        self.runtime = runtime
        self.peers = peers
        self._loop = asyncio.get_running_loop()
        self._loader = ThreadPoolExecutor(1, "loader", initializer=self._renice)
        self.residents = DeviceResidents()
        self._accounts = Accounts(info.id, self.residents, time.monotonic())
        self.queue = BatchQueue()
        self._replies = Replies(info.id, peers, self.residents, self._accounts)
        self.device_loop = DeviceLoop(
            info,
            runtime.watchdog,
            self.residents,
            self.queue,
            self._replies,
            self._accounts,
            profile_share,
            on_change=self.changed,
        )
        self.intake = Intake(
            self.residents, self.queue, self.device_loop, self._replies, self._accounts, queue_rows, peers.lease
        )
        self.residency = Residency(
            runtime,
            self.residents,
            self.queue,
            peers,
            self._replies,
            load=self.load,
            exclusive=functools.partial(self.device_loop.exclusive, WorkKind.PLAN),
            on_change=self.changed,
        )
        self._lull_checks = LullChecks(info.id, self.residents, self.device_loop.exclusive, peers.report)
        self._reported_rows = 0

    def _renice(self) -> None:
        # A load beside serving competes for the core; niced it takes what is left over. With more cores the
        # session's own threads would inherit the niceness, and an unprivileged process cannot take it back.
        if self.info.kind == "cpu" and self.runtime.cores == 1:
            lower_priority(_LOADER_NICE)

    # --- state ------------------------------------------------------------------------------------------------------

    def state(self) -> ExecutorState:
        """The state that gateways need."""
        return ExecutorState(
            device=self.info.id,
            plan_version=self.residency.plan_version,
            warm=tuple(loaded.wire() for loaded in self.residents.variants.values() if not loaded.closing),
            draining=bool(self.queue.closed),
            queued=self.queue.rows_by_application(),
            busy_s=self.device_loop.busy_s(time.monotonic()),
            errors=self.residency.errors,
            newest_plan=self.residency.newest_plan,
        )

    def device_state(self) -> DeviceState:
        """The state that the control plane needs."""
        errors = sorted(self.residency.errors.items())
        return DeviceState(
            device=self.info.id,
            state="draining" if self.queue.closed else "up",
            plan_version=self.residency.plan_version,
            warm=tuple(sorted(loaded.id for loaded in self.residents.variants.values() if not loaded.closing)),
            detail="; ".join(f"{name}: {text}" if name else text for name, text in errors)[:_MOST_DETAIL],
        )

    def changed(self) -> None:
        self.peers.send_to_gateways(self.state())
        self.peers.report(StateReport(self.device_state()))
        self.device_loop.wake()

    def metrics(self) -> str:
        self._accounts.settle()
        roles = {role.value: 0 for role in Role}
        for loaded in self.residents.variants.values():
            roles[loaded.role.value] += 1
        return self._accounts.meters.text(self.queue.rows, roles)

    async def tick(self) -> None:
        """Report waiting rows and overdue runs ten times a second, statistics once."""
        ticks, tidying = 0, None
        while True:
            await asyncio.sleep(0.1)
            ticks += 1
            self._accounts.settle()
            rows, now = self.queue.rows, time.monotonic()
            overdue = self.device_loop.overdue(now)
            if overdue:
                self.device_loop.hand_back_late(self.queue.waiting, now)
            if rows or self._reported_rows or overdue:
                self.peers.send_to_gateways(self.state())
                self._reported_rows = rows
            if ticks % 10 == 0:
                self._report_second()
                self._lull_checks.tick()
                # A task of its own: unloading may take a while, and silence would look like a hung process. A plan
                # on its way tidies up itself.
                if (tidying is None or tidying.done()) and not self.residency.settling:
                    tidying = self._loop.create_task(self.residency.tidy())

    def _report_second(self) -> None:
        now = time.monotonic()
        stats, overloads = self._accounts.close(
            now, self.queue.rows, self.runtime.memory_used(), self.residency.plan_version
        )
        self.peers.report(StatsReport(stats))
        for overload in overloads:
            self.peers.report(Relay(overload))
        for variant in self.residents.variants.values():
            ratio = variant.drifted(now)
            if ratio is not None:
                self.peers.report(Relay(Drift(device=self.info.id, variant=variant.id, ratio=ratio)))

    # --- the device's time ------------------------------------------------------------------------------------------

    async def load(self, call: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._loader, call, *args)

    async def stop(self, grace_s: float) -> None:
        """Refuse new queries, finish waiting ones for up to ``grace_s``, refuse the rest."""
        self.device_loop.stopping = True
        self.queue.closed = "this device is shutting down"
        self.changed()
        until = time.monotonic() + grace_s
        while self.queue.rows and time.monotonic() < until:
            await asyncio.sleep(0.005)
        self._replies.refuse_all(self.queue.clear(), "draining", self.queue.closed)
        self.device_loop.wake()

    def close(self) -> None:
        self.device_loop.close()
        self._loader.shutdown(wait=False, cancel_futures=True)
