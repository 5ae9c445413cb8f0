"""Profile jobs: load time, peak memory, latency by batch and accuracy, in steps.

Batches 1, 2, 4 ... ``max_batch`` are measured with :meth:`~.runtime.RunnableModel.sample`; of a model whose batch size
is fixed at 1, that one. Growing stops at the first batch whose p95 passes the SLO, and that point is kept: it bounds
interpolation from above. It also stops where memory ends.

All this at the largest size that the application declares, then for its smaller size classes
(:mod:`.size_classes`), as long as there is time for these.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workers import log, metrics
from workers.protocol import shapes
from workers.protocol.control import ProfileDone, ProfileFailed, ProfileOrder, ProfileProgress
from workers.protocol.frames import Measure, Relay
from workers.protocol.run_limits import limit_s
from workers.protocol.specs import ProfilePoint

from . import lull_checks, validation
from .codec import BF16
from .device import DeviceService
from .exclusive import WorkKind
from .independence import KeptBatch
from .runtime import Arrays, LoadError, RunError, RunnableModel, RunStopped, Runtime, out_of_memory
from .size_classes import SizeClasses
from .watchdog import PROFILING_LEAST_S

_log = log.get("executor.measuring")
#: enough runs of one batch size: FEW and LONG_S seconds of them, or MANY whatever their time, or LEAST once they
#: took TOO_LONG_S together
FEW, MANY, LEAST = 20, 200, 5
LONG_S, TOO_LONG_S = 0.3, 1.0
#: short runs are measured several in a step, or most of the time would go into handing over
STEP_S = 0.005
PROGRESS_EVERY_S = 0.2
MEMORY_USABLE = 0.9
VALIDATION_ROWS = 64
#: no further size class is begun once runs of the smaller ones took this many seconds: it counts as the next larger
SMALLER_S = 10.0


class _Failed(Exception):
    """The job ends; the message is for the operator."""


@dataclass(slots=True)
class _Job:
    order: ProfileOrder
    path: str
    validation_path: str | None
    runtime: Runtime
    classes: SizeClasses
    points: list[ProfilePoint] = field(default_factory=list)  # of the class that is being measured
    model: RunnableModel | None = None
    #: growth of used memory over this job's own steps, in bytes: others' growth is left out, and so is what a step
    #: gives back, since all share the memory arena
    grown: int = 0
    phase: str = ""
    done: float = 0.0
    reported_at: float = 0.0

    @property
    def profile(self) -> tuple[ProfilePoint, ...]:
        return (*self.classes.points(), *self.points)

    def noting_memory(self, call: Callable[[], Any]) -> Any:
        before = self.runtime.memory_used()
        try:
            return call()
        finally:
            self.grown += max(0, self.runtime.memory_used() - before)

    def sample(self, inputs: Arrays, rows: int, most: int) -> list[float]:
        """Run at most ``most`` times, for :data:`STEP_S` or once; the seconds of each run."""
        taken: list[float] = []
        while len(taken) < most and sum(taken) < STEP_S:
            taken.append(self.model.run(inputs, rows)[1])
        return taken


class Measuring:
    """The profile job of a device: the control plane has each device measure one at a time."""

    def __init__(self, device: DeviceService):
        self._device = device
        self._job: _Job | None = None
        self._task: asyncio.Task | None = None

    def order(self, message: Measure) -> None:
        """Begin a job in place of another one; the same job goes on."""
        if self._job is not None:
            if self._job.order == message.order:
                return
            self._task.cancel()
        classes = SizeClasses(message.order.application.sizes)
        self._job = _Job(message.order, message.path, message.validation_path, self._device.runtime, classes)
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

    async def _run(self, job: _Job, before: asyncio.Task | None) -> None:
        try:
            if before is not None:
                # A cancelled job may still hold the device.
                await asyncio.wait([before])
            report = await self._measure(job)
        except (LoadError, RunError, metrics.MetricError, validation.ValidationError, _Failed) as error:
            report = ProfileFailed(job=job.order.job, message=str(error)[:2000])
        except Exception as error:
            _log.exception("measuring_failed", job=job.order.job)
            report = ProfileFailed(job=job.order.job, message=f"{type(error).__name__}: {error}"[:2000])
        self._job = None
        # Larger batches than plans use were tried: what they took goes back to the system.
        self._device.runtime.watchdog.shrink_next = True
        self._device.peers.report(Relay(report))
        _log.info("measured", job=job.order.job, variant=job.order.variant.name, ok=isinstance(report, ProfileDone))

    def _progress(self, job: _Job, phase: str, done: float) -> None:
        job.phase, job.done = phase, done
        self._report_progress(job)

    def _report_progress(self, job: _Job) -> None:
        job.reported_at = time.monotonic()
        report = ProfileProgress(job=job.order.job, phase=job.phase, done=job.done, points=job.profile)
        self._device.peers.report(Relay(report))

    async def _measure(self, job: _Job) -> ProfileDone:
        order, device = job.order, self._device
        if order.max_batch < 1:
            raise _Failed(f"max_batch: must be at least 1, not {order.max_batch}")
        self._progress(job, "loading", 0.0)
        if not await device.residency.room_for(order.variant.size_bytes):
            raise _Failed(f"memory: {order.variant.size_bytes} bytes do not fit beside what the plan keeps here")
        load = functools.partial(device.runtime.load, job.path, order.application.signature, order.variant.id)
        job.model = model = await device.load(job.noting_memory, load)
        # Memory that others' runs left in the arena would hide what this variant needs.
        device.runtime.watchdog.shrink_next = True
        model.expect(order.variant)
        if job.validation_path is not None:
            try:
                first = await device.load(validation.first_rows, job.validation_path, order.application.signature)
            except validation.ValidationError as error:
                raise _Failed(f"validation: {error}") from None
            model.given(first)
        batches = _batches(min(order.max_batch, model.most_rows or order.max_batch))
        await self._first_run(job)
        begun = 0
        smaller_s = 0.0
        while (size := job.classes.next()) is not None and smaller_s < SMALLER_S:
            more = await self._class(job, size, batches, begun * len(batches))
            if size:
                smaller_s += sum(point.mean_s * point.samples for point in job.points)
            elif not more:
                # Where memory ended smaller queries are not to try for more.
                batches = batches[: len(job.points)]
            job.classes.add(size, job.points)
            job.points = []
            begun += 1
        accuracy, rows = None, 0
        if order.validation is not None:
            accuracy, rows = await self._validate(job)
        self._progress(job, "measuring" if accuracy is None else "validating", 1.0)
        return ProfileDone(
            job=order.job,
            load_s=model.load_s,
            memory_bytes=max(job.grown, order.variant.size_bytes),
            points=job.profile,
            accuracy=accuracy,
            validated_rows=rows,
        )

    async def _first_run(self, job: _Job) -> None:
        """Warm up with one row; a limit ends it, as its duration may be unknown."""
        order, model, slo_s = job.order, job.model, job.order.application.slo_s
        most_s = limit_s(0.0, slo_s)
        try:
            await self._device.device_loop.exclusive(
                WorkKind.PLAN if order.first else WorkKind.MEASURE,
                functools.partial(job.noting_memory, lambda: model.run(model.sample(1), 1)),
                expected_s=slo_s / 4,
                limit_s=most_s,
                variant=order.variant.id,
            )
        except RunStopped:
            raise _Failed(f"the first run of one row took longer than {most_s:g} s and was stopped") from None
        except RunError as error:
            raise _Failed(f"batch 1: {error}") from None

    async def _class(self, job: _Job, size: int, batches: list[int], done: int) -> bool:
        """Measure a size class after ``done`` batches; True if memory allows larger ones."""
        device, slo_s = self._device, job.order.application.slo_s
        of = len(batches) * len(job.classes) + (1 if job.order.validation is not None else 0)
        tried = max((point.batch for point in job.classes.points()), default=0)
        for i, rows in enumerate(batches, done):
            self._progress(job, "measuring", i / of)
            try:
                point = await self._point(job, rows, size)
            except RunError as error:
                if rows > 1 and out_of_memory(str(error)):
                    return False
                raise _Failed(f"{f'size {size}, ' if size else ''}batch {rows}: {error}") from None
            job.points.append(point)
            if point.p95_s > slo_s:
                break
            # Larger queries fitted at this batch size, so these do.
            limit = MEMORY_USABLE * device.info.memory_bytes
            if rows > tried and 0 < limit < device.runtime.memory_used():
                return False
        return True

    async def _point(self, job: _Job, rows: int, size: int) -> ProfilePoint:
        points, slo_s = job.points, job.order.application.slo_s
        inputs = job.model.sample(rows, size=size)
        # Until it ran once: no more than the last batch's time for each row.
        expected_s = points[-1].p50_s * rows / points[-1].batch if points else slo_s / 4

        def sample(most: int) -> asyncio.Future:
            return self._step(job, lambda: job.noting_memory(lambda: job.sample(inputs, rows, most)), expected_s)

        await sample(1)
        taken: list[float] = []
        while not _enough(taken, slo_s):
            expected_s = max(float(np.median(taken)), STEP_S) if taken else expected_s
            taken += await sample(MANY - len(taken))
        p50, p95 = np.percentile(taken, (50, 95))
        return ProfilePoint(rows, float(p50), float(p95), float(np.mean(taken)), len(taken), size)

    def _step(self, job: _Job, call: Callable[[], Any], expected_s: float) -> asyncio.Future:
        if time.monotonic() - job.reported_at >= PROGRESS_EVERY_S:
            self._report_progress(job)
        most_s = limit_s(expected_s, job.order.application.slo_s, PROFILING_LEAST_S)
        return self._device.device_loop.exclusive(
            WorkKind.MEASURE, call, expected_s=expected_s, limit_s=most_s, variant=job.order.variant.id
        )

    async def _validate(self, job: _Job) -> tuple[float, int]:
        order, device, model = job.order, self._device, job.model
        if job.validation_path is None:
            raise _Failed("validation: the order names no file for it")
        metric = metrics.create(order.validation.metric)
        arrays, labels = await device.load(validation.read, job.validation_path, order.application.signature)
        await self._check_rows(job, arrays)
        points = shapes.of_class(job.profile, 0)
        good = [point for point in points if point.p95_s <= order.application.slo_s] or points[:1]
        most = 1 if model.alone else VALIDATION_ROWS
        best = max((point for point in good if point.batch <= most), key=lambda p: p.batch)
        for start in range(0, len(labels), best.batch):
            job.phase, job.done = "validating", start / len(labels)
            piece = {name: array[start : start + best.batch] for name, array in arrays.items()}
            outputs, _ = await self._step(job, functools.partial(model.run, piece, best.batch), best.p50_s)
            # Metrics accept numpy's own types only.
            outputs = {
                name: array.astype(np.float32) if array.dtype == BF16 else array for name, array in outputs.items()
            }
            metric.add(outputs, labels[start : start + best.batch])
        percent = metric.percent()
        if not math.isfinite(percent):
            raise _Failed(f"validation: the metric {order.validation.metric} gave {percent}, which is no accuracy")
        return percent, len(labels)

    async def _check_rows(self, job: _Job, arrays: Arrays) -> None:
        """Compare rows together and each alone; report if they influence each other."""
        model = job.model
        if model.alone or model.most_rows is not None:
            return
        usual_s = shapes.of_class(job.profile, 0)[-1].p50_s
        for places in _choices(len(next(iter(arrays.values())))):
            kept = KeptBatch({name: array[places] for name, array in arrays.items()}, (1,) * len(places))
            difference = await lull_checks.mixed(model, kept, lambda call: self._step(job, call, usual_s))
            if difference:
                detail = f"{difference}, with rows of the validation set"
                device = self._device
                device.peers.report(lull_checks.take_batching(model, device.info.id, job.order.variant, detail))
                return


def _choices(rows: int) -> list[np.ndarray]:
    """Places of a few rows, near each other and far apart."""
    random = np.random.default_rng(rows)
    chosen = [np.arange(min(rows, 4)), *(random.choice(rows, min(rows, size), False) for size in (2, 3, 8))]
    return [places for places in chosen if len(places) > 1]


def _batches(max_batch: int) -> list[int]:
    batches, batch = [], 1
    while batch < max_batch:
        batches.append(batch)
        batch *= 2
    return [*batches, max_batch]


def _enough(taken: list[float], slo_s: float) -> bool:
    runs, seconds = len(taken), sum(taken)
    if runs >= MANY or (runs >= FEW and seconds >= LONG_S) or (runs >= LEAST and seconds >= TOO_LONG_S):
        return True
    # No plan uses a batch size that is far past the SLO: how far past is of no interest.
    return runs >= 3 and min(taken) > 2 * slo_s
