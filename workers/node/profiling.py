"""Profile jobs on this node.

The node fetches the files, has the device's executor measure, and relays its reports.

Every order ends in exactly one ProfileDone or ProfileFailed, unless it is cancelled. Such an end is worth minutes of
a device, and a link may be lost with it. So it is kept and sent again now and then, and its job is reported as under
way. That goes on until the control plane, for which the job has ended, cancels it, or orders another attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from .. import log
from ..protocol import control, frames
from .cache import FetchError, ModelCache
from .losses import Loss
from .supervision import ExecutorSupervisor

#: how long an order waits for an executor that is just starting
START_WAIT_S = 60.0
#: ends of jobs that are kept until the control plane has them
KEPT = 16


class _End(NamedTuple):
    variant: int | None  # the one that was measured; None: ordered by an earlier daemon, not known
    message: control.ProfileDone | control.ProfileFailed

    def answers(self, order: control.ProfileOrder) -> bool:
        """Whether nothing has to be measured: another attempt may mend a failed one."""
        if isinstance(self.message, control.ProfileFailed):
            return self.message.attempt == order.attempt > 0
        return self.variant in (None, order.variant.id)


class ProfileJobs:
    """The jobs under way, by id."""

    def __init__(
        self,
        cache: ModelCache,
        executors: Mapping[str, ExecutorSupervisor],
        send: Callable[[control.FromMember], None],
    ):
        self._cache = cache
        self._executors = executors
        self._send = send
        self._tasks: dict[int, asyncio.Task] = {}
        #: by job: its device, its variant, and how it ends
        self._measuring: dict[int, tuple[str, int, asyncio.Future[control.FromMember]]] = {}
        #: by job
        self._ends: dict[int, _End] = {}
        self._log = log.get("profiling")

    @property
    def under_way(self) -> tuple[int, ...]:
        """Ids of jobs that have not ended, or whose end may not have arrived."""
        return tuple(dict.fromkeys((*self._tasks, *self._ends)))

    def repeat(self) -> None:
        """Send ends of jobs again that the control plane may not have."""
        for end in self._ends.values():
            self._send(end.message)

    def order(self, order: control.ProfileOrder) -> None:
        """Start a job; one that is under way already goes on."""
        if order.job in self._tasks:
            self._log.info("profile_already_running", job=order.job)
            return
        end = self._ends.pop(order.job, None)
        if end is not None and end.answers(order):
            self._end(*end)
            return
        task = asyncio.create_task(self._run(order), name=f"profile-{order.job}")
        self._tasks[order.job] = task
        task.add_done_callback(lambda done: self._ended(order, done))

    def cancel(self, job: int) -> None:
        """Stop a job; nothing is answered."""
        self._ends.pop(job, None)
        # Forgotten at once, so that the same job may be ordered again.
        task = self._tasks.pop(job, None)
        if task is not None:
            self._log.info("profile_cancelled", job=job)
            task.cancel()

    def relay(self, report: control.ProfileProgress | control.ProfileDone | control.ProfileFailed) -> None:
        """Take an executor's report of a job.

        Reports of jobs that are not wanted are dropped. A result counts in any case: an earlier daemon may have ordered
        the job.
        """
        if report.job not in self._measuring:
            if isinstance(report, control.ProfileDone):
                self._end(None, report)
            return
        _, _, outcome = self._measuring[report.job]
        if not isinstance(report, control.ProfileProgress):
            _settle(outcome, report)
        elif not outcome.done():
            self._send(report)

    def lost(self, device: str, loss: Loss) -> None:
        """Fail a lost device's jobs, for good where the job's variant crashed it."""
        for job, (where, variant, outcome) in self._measuring.items():
            if where == device:
                message = f"the executor of {device} was lost during the measurement: {loss.reason}"
                retry = not (loss.crashed and loss.variant == variant)
                _settle(outcome, control.ProfileFailed(job=job, message=message, retry=retry))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, order: control.ProfileOrder, task: asyncio.Task) -> None:
        if task.cancelled():
            ended = None
        elif (error := task.exception()) is not None:
            self._log.error("profile_error", job=order.job, exc_info=error)
            ended = control.ProfileFailed(job=order.job, message=f"the node failed: {error}")
        else:
            ended = task.result()
        # Cancelled after its end, or ordered again: nobody waits for this one.
        if self._tasks.get(order.job) is not task:
            return
        del self._tasks[order.job]
        if isinstance(ended, control.ProfileFailed):
            ended = msgspec.structs.replace(ended, attempt=order.attempt)
        if ended is not None:
            self._end(order.variant.id, ended)

    async def _run(self, order: control.ProfileOrder) -> control.ProfileDone | control.ProfileFailed:
        executor = self._executors.get(order.device)
        if executor is None:
            known = ", ".join(self._executors)
            message = f"device {order.device!r}: this node has no such device (it has {known})"
            return control.ProfileFailed(job=order.job, message=message)
        validation = order.validation
        digests = [order.variant.digest] + ([] if validation is None else [validation.digest])
        with self._cache.borrowed(digests):
            self._send(control.ProfileProgress(job=order.job, phase="fetching", done=0.0))
            try:
                paths = [str(await self._cache.fetch(digest)) for digest in digests]
            except FetchError as error:
                message = f"fetching failed: {error}"
                return control.ProfileFailed(job=order.job, message=message, retry=not error.permanent)
            return await self._measure(order, executor, paths)

    def _end(self, variant: int | None, message: control.ProfileDone | control.ProfileFailed) -> None:
        """Send how a job ended, and keep it until it has arrived."""
        self._ends.pop(message.job, None)
        self._ends[message.job] = _End(variant, message)
        while len(self._ends) > KEPT:
            del self._ends[next(iter(self._ends))]
        self._send(message)

    async def _measure(
        self, order: control.ProfileOrder, executor: ExecutorSupervisor, paths: list[str]
    ) -> control.ProfileDone | control.ProfileFailed:
        measure = frames.Measure(order, paths[0], paths[1] if order.validation is not None else None)
        outcome = asyncio.get_running_loop().create_future()
        waited = 0.0
        while not executor.up:
            if waited >= START_WAIT_S:
                why = executor.last_failure or "it is still starting"
                message = f"device {order.device}: its executor is not up: {why}"
                return control.ProfileFailed(job=order.job, message=message, retry=True)
            await asyncio.sleep(0.1)
            waited += 0.1
        self._measuring[order.job] = order.device, order.variant.id, outcome
        try:
            if not executor.send(measure):
                message = f"device {order.device}: its executor went away"
                return control.ProfileFailed(job=order.job, message=message, retry=True)
            self._log.info("profile_started", job=order.job, variant=order.variant.name, device=order.device)
            return await outcome
        except asyncio.CancelledError:
            executor.send(frames.MeasureCancel(job=order.job))
            raise
        finally:
            del self._measuring[order.job]


def _settle(outcome: asyncio.Future, message: control.FromMember) -> None:
    if not outcome.done():
        outcome.set_result(message)
