"""The profile job of a device: the control plane has each device measure one at a time."""

from __future__ import annotations

import asyncio

from workers import log, metrics
from workers.protocol.control import ProfileDone, ProfileFailed
from workers.protocol.frames import Measure, Relay

from .device import DeviceService
from .profile_job import JobFailed, ProfileJob
from .runtime import LoadError, RunError

_log = log.get("executor.measuring")


class Measuring:
    def __init__(self, device: DeviceService):
        self._device = device
        self._job: ProfileJob | None = None
        self._task: asyncio.Task | None = None

    def order(self, message: Measure) -> None:
        """Begin a job in place of another one; the same job goes on."""
        if self._job is not None:
            if self._job.order == message.order:
                return
            self._task.cancel()
        self._job = ProfileJob(self._device, message)
        self._task = asyncio.get_running_loop().create_task(self._run(self._job, self._task))

    def cancel(self, number: int) -> None:
        """Forget a job; nothing is answered."""
        if self._job is not None and self._job.order.job == number:
            self._job = None
            self._task.cancel()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, job: ProfileJob, before: asyncio.Task | None) -> None:
        order = job.order
        try:
            if before is not None:
                # A cancelled job may still hold the device.
                await asyncio.wait([before])
            report = await job.run()
        except (LoadError, RunError, metrics.MetricError, JobFailed) as error:
            report = ProfileFailed(job=order.job, message=str(error)[:2000])
        except Exception as error:
            _log.exception("measuring_failed", job=order.job)
            report = ProfileFailed(job=order.job, message=f"{type(error).__name__}: {error}"[:2000])
        self._job = None
        # Larger batches than plans use were tried: what they took goes back to the system.
        self._device.runtime.watchdog.shrink_next = True
        self._device.peers.report(Relay(report))
        _log.info("measured", job=order.job, variant=order.variant.name, ok=isinstance(report, ProfileDone))
