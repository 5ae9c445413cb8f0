"""A profile job: load time, peak memory, latency by batch and accuracy of one variant, in steps.

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
from typing import Any

import numpy as np

from workers import metrics
from workers.protocol import shapes
from workers.protocol.control import ProfileDone, ProfileProgress
from workers.protocol.frames import Measure, Relay
from workers.protocol.run_limits import limit_s
from workers.protocol.specs import ProfilePoint, Signature

from . import lull_checks, validation
from .codec import BF16
from .device import DeviceService
from .exclusive import WorkKind
from .independence import KeptBatch
from .runtime import Arrays, RunError, RunnableModel, RunStopped, out_of_memory
from .size_classes import SizeClasses
from .watchdog import PROFILING_LEAST_S

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


class JobFailed(Exception):
    """The job ends; the message is for the operator."""


class ProfileJob:
    def __init__(self, device: DeviceService, message: Measure):
        self.order = message.order
        self._device = device
        self._path, self._validation_path = message.path, message.validation_path
        self._slo_s = message.order.application.slo_s
        self._classes = SizeClasses(message.order.application.sizes)
        #: of the class that is being measured
        self._points: list[ProfilePoint] = []
        self._model: RunnableModel
        #: growth of used memory over this job's own steps, in bytes: others' growth is left out, and so is what a step
        #: gives back, since all share the memory arena
        self._grown = 0
        self._phase, self._done, self._reported_at = "", 0.0, 0.0

    async def run(self) -> ProfileDone:
        """Raises JobFailed, LoadError, RunError or MetricError where it cannot be done."""
        order, device = self.order, self._device
        if order.max_batch < 1:
            raise JobFailed(f"max_batch: must be at least 1, not {order.max_batch}")
        self._progress("loading", 0.0)
        if not await device.residency.room_for(order.variant.size_bytes):
            raise JobFailed(f"memory: {order.variant.size_bytes} bytes do not fit beside what the plan keeps here")
        load = functools.partial(device.runtime.load, self._path, order.application.signature, order.variant.id)
        self._model = model = await device.load(self._noting_memory, load)
        # Memory that others' runs left in the arena would hide what this variant needs.
        device.runtime.watchdog.shrink_next = True
        model.expect(order.variant)
        if self._validation_path is not None:
            model.given(await self._read(validation.first_rows))
        batches = _batches(min(order.max_batch, model.most_rows or order.max_batch))
        await self._first_run()
        begun = 0
        smaller_s = 0.0
        while (size := self._classes.next()) is not None and smaller_s < SMALLER_S:
            more = await self._class(size, batches, begun * len(batches))
            if size:
                smaller_s += sum(point.mean_s * point.samples for point in self._points)
            elif not more:
                # Where memory ended smaller queries are not to try for more.
                batches = batches[: len(self._points)]
            self._classes.add(size, self._points)
            self._points = []
            begun += 1
        accuracy, rows = None, 0
        if order.validation is not None:
            accuracy, rows = await self._validate()
        self._progress("measuring" if accuracy is None else "validating", 1.0)
        return ProfileDone(
            job=order.job,
            load_s=model.load_s,
            memory_bytes=max(self._grown, order.variant.size_bytes),
            points=self._classes.points(),
            accuracy=accuracy,
            validated_rows=rows,
        )

    def _progress(self, phase: str, done: float) -> None:
        self._phase, self._done = phase, done
        self._report_progress()

    def _report_progress(self) -> None:
        self._reported_at = time.monotonic()
        points = (*self._classes.points(), *self._points)
        report = ProfileProgress(job=self.order.job, phase=self._phase, done=self._done, points=points)
        self._device.peers.report(Relay(report))

    def _noting_memory(self, call: Callable[[], Any]) -> Any:
        before = self._device.runtime.memory_used()
        try:
            return call()
        finally:
            self._grown += max(0, self._device.runtime.memory_used() - before)

    async def _read(self, read: Callable[[str, Signature], Any]) -> Any:
        """Read the validation set."""
        try:
            return await self._device.load(read, self._validation_path, self.order.application.signature)
        except validation.ValidationError as error:
            raise JobFailed(f"validation: {error}") from None

    async def _first_run(self) -> None:
        """Warm up with one row; a limit ends it, as its duration may be unknown."""
        model = self._model
        try:
            await self._device.device_loop.exclusive(
                WorkKind.PLAN if self.order.first else WorkKind.MEASURE,
                functools.partial(self._noting_memory, lambda: model.run(model.sample(1), 1)),
                expected_s=self._slo_s / 4,
                limit_s=limit_s(0.0, self._slo_s),
                variant=self.order.variant.id,
            )
        except RunStopped as error:
            raise JobFailed(f"the first run of one row {error}") from None
        except RunError as error:
            raise JobFailed(f"batch 1: {error}") from None

    async def _class(self, size: int, batches: list[int], done: int) -> bool:
        """Measure a size class after ``done`` batches; True if memory allows larger ones."""
        device = self._device
        of = len(batches) * len(self._classes) + (1 if self.order.validation is not None else 0)
        tried = max((point.batch for point in self._classes.points()), default=0)
        for i, rows in enumerate(batches, done):
            self._progress("measuring", i / of)
            try:
                point = await self._point(rows, size)
            except RunError as error:
                if rows > 1 and out_of_memory(str(error)):
                    return False
                raise JobFailed(f"{f'size {size}, ' if size else ''}batch {rows}: {error}") from None
            self._points.append(point)
            if point.p95_s > self._slo_s:
                break
            # Larger queries fitted at this batch size, so these do.
            limit = MEMORY_USABLE * device.info.memory_bytes
            if rows > tried and 0 < limit < device.runtime.memory_used():
                return False
        return True

    async def _point(self, rows: int, size: int) -> ProfilePoint:
        points, model = self._points, self._model
        inputs = model.sample(rows, size=size)
        # Until it ran once: no more than the last batch's time for each row.
        expected_s = points[-1].p50_s * rows / points[-1].batch if points else self._slo_s / 4

        def runs(most: int) -> list[float]:
            """At most ``most``, for :data:`STEP_S` or one; the seconds of each."""
            took: list[float] = []
            while len(took) < most and sum(took) < STEP_S:
                took.append(model.run(inputs, rows)[1])
            return took

        def sample(most: int) -> asyncio.Future:
            return self._step(lambda: self._noting_memory(lambda: runs(most)), expected_s)

        await sample(1)
        taken: list[float] = []
        while not _enough(taken, self._slo_s):
            expected_s = max(float(np.median(taken)), STEP_S) if taken else expected_s
            taken += await sample(MANY - len(taken))
        p50, p95 = np.percentile(taken, (50, 95))
        return ProfilePoint(rows, float(p50), float(p95), float(np.mean(taken)), len(taken), size)

    def _step(self, call: Callable[[], Any], expected_s: float) -> asyncio.Future:
        if time.monotonic() - self._reported_at >= PROGRESS_EVERY_S:
            self._report_progress()
        return self._device.device_loop.exclusive(
            WorkKind.MEASURE,
            call,
            expected_s=expected_s,
            limit_s=limit_s(expected_s, self._slo_s, PROFILING_LEAST_S),
            variant=self.order.variant.id,
        )

    async def _validate(self) -> tuple[float, int]:
        order, model = self.order, self._model
        if self._validation_path is None:
            raise JobFailed("validation: the order names no file for it")
        metric = metrics.create(order.validation.metric)
        arrays, labels = await self._read(validation.read)
        points = shapes.of_class(self._classes.points(), 0)
        await self._check_rows(arrays, points[-1].p50_s)
        good = [point for point in points if point.p95_s <= self._slo_s] or points[:1]
        most = 1 if model.alone else VALIDATION_ROWS
        best = max((point for point in good if point.batch <= most), key=lambda p: p.batch)
        for start in range(0, len(labels), best.batch):
            self._phase, self._done = "validating", start / len(labels)
            piece = {name: array[start : start + best.batch] for name, array in arrays.items()}
            outputs, _ = await self._step(functools.partial(model.run, piece, best.batch), best.p50_s)
            # Metrics accept numpy's own types only.
            outputs = {
                name: array.astype(np.float32) if array.dtype == BF16 else array for name, array in outputs.items()
            }
            metric.add(outputs, labels[start : start + best.batch])
        percent = metric.percent()
        if not math.isfinite(percent):
            raise JobFailed(f"validation: the metric {order.validation.metric} gave {percent}, which is no accuracy")
        return percent, len(labels)

    async def _check_rows(self, arrays: Arrays, usual_s: float) -> None:
        """Compare rows together and each alone; report if they influence each other."""
        model, device = self._model, self._device
        if model.alone or model.most_rows is not None:
            return
        for places in _choices(len(next(iter(arrays.values())))):
            kept = KeptBatch({name: array[places] for name, array in arrays.items()}, (1,) * len(places))
            difference = await lull_checks.mixed(model, kept, lambda call: self._step(call, usual_s))
            if difference:
                detail = f"{difference}, with rows of the validation set"
                device.peers.report(lull_checks.take_batching(model, device.info.id, self.order.variant, detail))
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
