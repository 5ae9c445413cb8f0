"""Checks of served batches in lulls: queries must not influence each other.

One batch in a while of each variant is kept, and run again, together and query by query, while the device has nothing
else to do. A difference takes batching away from the variant at once, and is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workers import log
from workers.protocol.control import FaultReport
from workers.protocol.frames import Relay
from workers.protocol.run_limits import limit_s
from workers.protocol.specs import VariantSpec

from .batch import DispatchedBatch
from .exclusive import WorkKind
from .independence import Arrays, KeptBatch, influence
from .loaded import DeviceResidents, Loaded
from .padding import PaddingError
from .runtime import RunError, RunnableModel

_log = log.get("executor.lull_checks")
#: seconds between two checks of a device: a small share of its idle time
EVERY_S = 5.0
#: queries of a batch that are run again, and bytes of their inputs
MOST_QUERIES, MOST_BYTES = 8, 2**20


def keep(loaded: Loaded, batch: DispatchedBatch) -> None:
    """Keep some queries of a batch that shared a run."""
    shapes = batch.shapes[:MOST_QUERIES]
    rows = tuple(shape.rows for shape in shapes)
    # Padded along one axis, each query takes what the longest one takes; along several, it may take more.
    most = max(shape.nbytes // shape.rows for shape in shapes) * sum(rows)
    if most > MOST_BYTES or any(shape.key != shapes[0].key for shape in shapes):
        return
    loaded.wants_batch = False
    # A failure here must not end the device loop; a later batch is kept instead.
    with contextlib.suppress(PaddingError, MemoryError):
        loaded.kept = KeptBatch(batch.inputs(range(len(shapes)), MOST_BYTES), rows)


async def mixed(model: RunnableModel, kept: KeptBatch, step: Callable[[Callable[[], Any]], Any]) -> str:
    """Describe how queries influence each other; empty: not, or the model fails."""
    names = [spec.name for spec in model.signature.outputs]

    async def run(inputs: Arrays) -> Sequence[np.ndarray]:
        count = len(next(iter(inputs.values())))
        outputs, _ = await step(lambda: model.run(inputs, count))
        return [outputs[name] for name in names]

    try:
        return await influence(run, kept.inputs, kept.rows, names)
    except RunError:
        return ""


def take_batching(model: RunnableModel, device: str, variant: VariantSpec, difference: str) -> Relay:
    """Have queries run alone from now on, and return the report of it."""
    model.alone = True
    _log.error("queries_mixed", variant=variant.name, detail=difference)
    return Relay(FaultReport(device=device, variant=variant.id, cause="mixed", detail=difference))


class LullChecks:
    """Checks the variants of a device in turn."""

    def __init__(
        self,
        device: str,
        residents: DeviceResidents,
        exclusive: Callable[..., asyncio.Future],
        report: Callable[[Relay], None],
    ):
        self._device = device
        self._residents = residents
        self._exclusive = exclusive
        self._report = report
        self._task: asyncio.Task | None = None
        self._next_at = 0.0

    def tick(self) -> None:
        """Begin the next check if it is due; called once a second."""
        now = time.monotonic()
        if now < self._next_at or (self._task is not None and not self._task.done()):
            return
        ready = []
        for loaded in self._residents.variants.values():
            able = not (loaded.closing or loaded.model.alone or loaded.model.most_rows)
            loaded.wants_batch = able and loaded.kept is None
            if able and loaded.kept is not None:
                ready.append(loaded)
        if ready:
            loaded = min(ready, key=lambda candidate: candidate.checked_at)
            loaded.checked_at, self._next_at = now, now + EVERY_S
            self._task = asyncio.get_running_loop().create_task(self._check(loaded))

    async def _check(self, loaded: Loaded) -> None:
        kept, loaded.kept = loaded.kept, None
        usual_s = loaded.estimate.usual_s(sum(kept.rows))

        def step(call: Callable[[], Any]) -> asyncio.Future:
            most_s = limit_s(usual_s, loaded.application.slo_s)
            return self._exclusive(WorkKind.CHECK, call, expected_s=usual_s, limit_s=most_s, variant=loaded.id)

        difference = await mixed(loaded.model, kept, step)
        if difference and not loaded.model.alone:
            self._report(take_batching(loaded.model, self._device, loaded.variant, difference))
