"""Loaded variants: brings plans into force, make before break if memory allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from workers import log
from workers.dispatch.standby import MEMORY_SHARE
from workers.protocol.frames import Apply
from workers.protocol.run_limits import limit_s
from workers.protocol.specs import ApplicationSpec, Resident

from .batch_queue import BatchQueue
from .loaded import DeviceResidents, Loaded, Role
from .peers import Peers
from .replies import Replies
from .runtime import LoadError, RunError, Runtime
from .watchdog import WARM_UP_LEAST_S

_log = log.get("executor.residency")
#: standby variants kept so that a swap back is instant
STANDBYS = 8
#: how long queries of a variant that must go before its successor fits are still served
BREAK_GRACE_S = 2.0


class Residency:
    """The plan in force, and the transition to the next."""

    def __init__(
        self,
        runtime: Runtime,
        residents: DeviceResidents,
        queue: BatchQueue,
        peers: Peers,
        replies: Replies,
        load: Callable[..., Awaitable[Any]],
        exclusive: Callable[..., Awaitable[Any]],
        on_change: Callable[[], None],
    ):
        self._runtime = runtime
        self._residents = residents
        self.loaded = residents.variants
        self._queue = queue
        self._peers = peers
        self._replies = replies
        self._load_call = load
        self._exclusive = exclusive
        self._on_change = on_change
        self.errors: dict[str, str] = {}
        self.plan_version = 0
        self._target: Apply | None = None
        self._task: asyncio.Task | None = None

    @property
    def settling(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def memory_bytes(self) -> int:
        return sum(loaded.memory_bytes for loaded in self.loaded.values())

    @property
    def newest_plan(self) -> int:
        """Version of the newest plan received, in force or not; 0: there is none."""
        return self._target.plan_version if self._target is not None else 0

    def apply(self, message: Apply) -> None:
        """Make this the plan; variants still loading stay only if it wants them."""
        self._target = message
        if not self.settling:
            self._task = asyncio.get_running_loop().create_task(self._settle())
        # Gateways move to what is warm already as soon as it is sure to stay.
        self._on_change()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _settle(self) -> None:
        settled = None
        while self._target is not settled:
            settled = self._target
            try:
                await self._bring(settled)
            except Exception:
                _log.exception("plan_not_applied", plan_version=settled.plan_version)
                self.errors = {**self.errors, "": f"plan {settled.plan_version} could not be applied"}
                self._on_change()

    async def _bring(self, target: Apply) -> None:
        applications = {application.name: application for application in target.applications}
        residents = {resident.variant.id: resident for resident in target.plan.residents}
        errors: dict[str, str] = {}
        for resident in target.plan.residents:
            have = self.loaded.get(resident.variant.id)
            application = applications.get(resident.variant.application)
            if application is None:
                errors[resident.variant.name] = f"application {resident.variant.application!r} is not in the plan"
                continue
            if have is not None and self._same(have, resident, application):
                have.closing = False
                continue
            try:
                path = target.paths.get(resident.variant.digest)
                if path is None:
                    raise LoadError("the plan names no file for it")
                if have is not None:
                    await self._unload([have])
                    if self._target is not target:
                        return
                await self._make_room(resident, residents)
                await self._load(resident, application, path)
            except (LoadError, RunError) as error:
                _log.warning("variant_not_loaded", variant=resident.variant.name, error=str(error))
                errors[resident.variant.name] = str(error)
            if self._target is not target:
                return
        self._switch(target, residents, applications, errors)
        await self._load_standbys(target, applications)
        await self.tidy()

    async def _load_standbys(self, target: Apply, applications: dict[str, ApplicationSpec]) -> None:
        """Load standby variants once the plan is in force, into free memory only."""
        for resident in target.plan.standby_residents:
            application = applications.get(resident.variant.application)
            path = target.paths.get(resident.variant.digest)
            if self._target is not target or application is None or path is None:
                continue
            have = self.loaded.get(resident.variant.id)
            if have is not None and self._same(have, resident, application):
                have.closing = False
                if have.role is not Role.PLANNED:
                    have.update(resident, application)
                continue
            if have is not None or not await self.room_for(_needed_bytes(resident)):
                continue
            try:
                await self._load(resident, application, path)
            except (LoadError, RunError) as error:
                _log.warning("standby_not_loaded", variant=resident.variant.name, error=str(error))
                continue
            loaded = self.loaded[resident.variant.id]
            if loaded.role is Role.WARMING:
                loaded.role = Role.STANDBY
                self._rearrange()

    @staticmethod
    def _same(have: Loaded, resident: Resident, application: ApplicationSpec) -> bool:
        return have.variant.digest == resident.variant.digest and have.model.signature == application.signature

    async def _load(self, resident: Resident, application: ApplicationSpec, path: str) -> None:
        model = await self._load_call(self._runtime.load, path, application.signature, resident.variant.id)
        model.expect(resident.variant)
        loaded = Loaded(resident, application, model, time.monotonic())
        for rows in (1, 1, loaded.max_batch):
            expected_s = loaded.estimate.profiled.seconds(rows)
            most_s = limit_s(expected_s, application.slo_s, WARM_UP_LEAST_S)
            await self._exclusive(
                lambda rows=rows: model.run(model.sample(rows), rows),
                expected_s=expected_s,
                limit_s=most_s,
                variant=loaded.id,
            )
        self.loaded[loaded.id] = loaded
        _log.info("variant_warm", variant=loaded.variant.name, load_s=round(model.load_s, 4))
        self._rearrange()

    def _switch(self, target: Apply, residents: dict[int, Resident], applications, errors: dict[str, str]) -> None:
        now = time.monotonic()
        for loaded in self.loaded.values():
            resident = residents.get(loaded.id)
            if resident is not None and resident.variant.application in applications:
                loaded.update(resident, applications[resident.variant.application])
                loaded.role, loaded.used_at = Role.PLANNED, now
                loaded.plan_version = target.plan_version
            elif loaded.role is Role.PLANNED:
                loaded.role, loaded.plan_version, loaded.used_at = Role.LEAVING, target.plan_version, now
            elif loaded.role is Role.WARMING:
                loaded.role = Role.STANDBY
        # Keep applications that left the plan while a variant of them is warm.
        warm = {loaded.variant.application: loaded.application for loaded in self.loaded.values()}
        self._residents.keep_applications({**warm, **applications})
        self.plan_version = target.plan_version
        self.errors = errors
        _log.info("plan_in_force", plan_version=self.plan_version, errors=len(errors))
        self._rearrange()

    def _rearrange(self) -> None:
        stranded = self._queue.strand(self.loaded)
        self._replies.refuse_all(stranded, "not_resident", "its variant left this device")
        self._on_change()

    async def tidy(self) -> None:
        """Turn variants that left the plan into standby variants, and unload excess ones."""
        changed = False
        for loaded in self.loaded.values():
            moved = loaded.role is Role.LEAVING and self._peers.all_moved(loaded.plan_version)
            if moved and not self._queue.needs(loaded.id):
                loaded.role, changed = Role.STANDBY, True
        if changed:
            self._rearrange()
        allowed = self._target.plan.may_stay if self._target is not None else None
        standbys = self._standbys()
        victims = [loaded for loaded in standbys if allowed is not None and loaded.id not in allowed]
        standbys = [loaded for loaded in standbys if loaded not in victims]
        limit = MEMORY_SHARE * self._runtime.device.memory_bytes
        memory = self.memory_bytes - sum(loaded.memory_bytes for loaded in victims)
        while standbys and (len(standbys) > STANDBYS or 0 < limit < memory):
            victims.append(standbys.pop(0))
            memory -= victims[-1].memory_bytes
        await self._unload(victims)

    def _standbys(self) -> list[Loaded]:
        """Least recently used first, without those that queries wait for."""
        # A plan on its way may want some of them.
        wanted = set()
        if self._target is not None:
            wanted = {r.variant.id for r in (*self._target.plan.residents, *self._target.plan.standby_residents)}
        idle = (w for w in self.loaded.values() if w.role is Role.STANDBY and not w.closing and w.id not in wanted)
        return sorted((w for w in idle if not self._queue.needs(w.id)), key=lambda w: (w.used_at, w.id))

    async def room_for(self, size_bytes: int) -> bool:
        """Unload standby variants until this many bytes fit; whether they do."""
        return await self._evict(self._standbys(), size_bytes)

    async def _make_room(self, resident: Resident, residents: dict[int, Resident]) -> None:
        """Unload variants outside of the new plan if a newcomer does not fit otherwise.

        Break before make: gateways learn it first, and queued batches are still served for a moment.
        """
        order = {Role.STANDBY: 0, Role.WARMING: 1, Role.LEAVING: 2, Role.PLANNED: 3}
        others = [loaded for loaded in self.loaded.values() if loaded.id not in residents]
        others.sort(key=lambda w: (order[w.role], w.used_at, w.id))
        await self._evict(others, _needed_bytes(resident))

    async def _evict(self, candidates: Iterable[Loaded], size_bytes: int) -> bool:
        """Unload candidates in their order until this many bytes fit; whether they do."""
        limit = self._runtime.device.memory_bytes
        victims, memory = [], self.memory_bytes + size_bytes
        for loaded in candidates:
            if not 0 < limit < memory:
                break
            victims.append(loaded)
            memory -= loaded.memory_bytes
        await self._unload(victims)
        return not 0 < limit < memory

    async def _unload(self, victims: list[Loaded]) -> None:
        if not victims:
            return
        for loaded in victims:
            loaded.closing = True
        self._on_change()
        until = time.monotonic() + BREAK_GRACE_S
        while any(self._queue.needs(loaded.id) for loaded in victims) and time.monotonic() < until:
            await asyncio.sleep(0.005)
        # A plan that came meanwhile may want one of them again.
        victims = [loaded for loaded in victims if loaded.closing and loaded.id in self.loaded]
        for loaded in victims:
            self.loaded.pop(loaded.id, None)
            _log.info("variant_unloaded", variant=loaded.variant.name)
        self._rearrange()
        # With the device to itself, so that no batch still holds what is to be freed.
        await self._exclusive(lambda: [_free(loaded) for loaded in victims])
        self._runtime.watchdog.shrink_next = True


def _needed_bytes(resident: Resident) -> int:
    return max(resident.memory_bytes, resident.variant.size_bytes)


def _free(loaded: Loaded) -> None:
    del loaded.model.session
