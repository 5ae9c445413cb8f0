"""Rollout of one device's part of a plan.

It fetches missing files, then sends one Apply to the executor.

A newer configuration supersedes one that is still being fetched; until the Apply the device goes on with what it has.
A file that cannot be obtained does not hold up the others: the device gets the plan without that variant, and the whole
plan once the file is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from .. import log
from ..protocol import control, frames
from ..protocol.specs import DeviceInfo, DevicePlan
from .cache import FetchError, ModelCache

#: seconds before what could not be fetched is tried again, doubled each time up to the second figure
RETRY = (2.0, 60.0)


class DeviceRollout:
    """One device's plan on its way."""

    def __init__(
        self,
        device: DeviceInfo,
        cache: ModelCache,
        apply: Callable[[frames.Apply], None],
        changed: Callable[[], None],
    ):
        self._device = device
        self._cache = cache
        self._send = apply
        self._changed = changed
        self._task: asyncio.Task | None = None
        self._again = asyncio.Event()
        self._log = log.get("placement").bind(device=device.id)
        self.current: frames.Apply | None = None
        """the last Apply; a restarted executor gets it again"""
        self.problem = ""
        """what keeps the plan from being whole, in words"""
        self.wanted: set[str] = set()
        """files that the newest plan names, fetched or not"""

    def digests(self) -> set[str]:
        return set() if self.current is None else set(self.current.paths)

    def place(self, config: control.NodeConfig) -> None:
        """Make this device's part of ``config`` its plan, superseding any earlier one."""
        if self._task is not None:
            self._task.cancel()
        plan = device_plan(config, self._device)
        self.wanted = {resident.variant.digest for resident in (*plan.residents, *plan.standby_residents)}
        self._task = asyncio.create_task(self._place(config), name=f"place-{self._device.id}")
        self._task.add_done_callback(self._ended)

    def retry(self) -> None:
        """Fetch at once what could not be fetched: the control plane is back."""
        self._again.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log.error("placement_failed", exc_info=task.exception())

    async def _place(self, config: control.NodeConfig) -> None:
        plan = device_plan(config, self._device)
        digests = sorted(self.wanted)
        pause, longest = RETRY
        while True:
            self._again.clear()
            paths, problems = {}, []
            outcomes = await asyncio.gather(*map(self._cache.fetch, digests), return_exceptions=True)
            for digest, outcome in zip(digests, outcomes, strict=True):
                if isinstance(outcome, FetchError):
                    problems.append(str(outcome))
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    paths[digest] = str(outcome)
            self.problem = "; ".join(problems)
            self._apply(config, plan, paths)
            self._changed()
            if not problems:
                return
            self._log.warning("plan_incomplete", plan=config.plan.version, reason=self.problem, retry_s=pause)
            try:
                # Not wait_for(), which may lose a cancellation.
                async with asyncio.timeout(pause):
                    await self._again.wait()
            except TimeoutError:
                pass
            pause = min(longest, pause * 2)

    def _apply(self, config: control.NodeConfig, plan: DevicePlan, paths: dict[str, str]) -> None:
        residents = tuple(resident for resident in plan.residents if resident.variant.digest in paths)
        standby = tuple(resident for resident in plan.standby_residents if resident.variant.digest in paths)
        apply = frames.Apply(
            plan_version=config.plan.version,
            plan=msgspec.structs.replace(plan, residents=residents, standby_residents=standby),
            applications=config.applications,
            paths=paths,
        )
        if apply == self.current:
            return
        self.current = apply
        self._log.info("apply", plan=apply.plan_version, variants=[resident.variant.name for resident in residents])
        self._send(apply)


def device_plan(config: control.NodeConfig, device: DeviceInfo) -> DevicePlan:
    """The plan's part for ``device``; a device that it does not name hosts nothing."""
    for plan in config.plan.devices:
        if plan.device == device.id:
            return plan
    return DevicePlan(device=device.id, endpoint=device.endpoint, residents=())
