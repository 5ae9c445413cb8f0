"""Python calls of the executor for a dispatched batch."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import uvloop

from workers.protocol.frame_connection import FrameConnection

from .harness import application, resident, rows, variant
from .test_on_arrival import MOMENT_S, InThisProcess

#: Python calls of a batch of one, from the bytes that are read to those that are written, its share of the deferred
#: accounting and onnxruntime's own left out
CALLS = 34
WARM_UP, COUNTED = 200, 400


class Calls:
    """Counts the Python calls under each read of one connection."""

    def __init__(self, connection: FrameConnection):
        self._connection = connection
        self._root: FrameType | None = None
        self._calls: Counter[str] = Counter()
        self.reads: list[Counter[str]] = []

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._root is None:
            called = event == "call" and frame.f_code is FrameConnection.buffer_updated.__code__
            if not called or frame.f_locals["self"] is not self._connection:
                return
            self._root = frame
        if event == "call" and "onnxruntime" not in frame.f_code.co_filename:
            self._calls[frame.f_code.co_qualname] += 1
        elif event == "return" and frame is self._root:
            self._root = None
            self.reads.append(self._calls)
            self._calls = Counter()


def test_a_batch_of_one_costs_the_executor_few_python_calls(tiny_models: dict[str, Path], tmp_path: Path):
    async def count() -> list[Counter[str]]:
        async with InThisProcess(tmp_path) as executor:
            path = tiny_models["quick"]
            gateway = await executor.applied(1, [resident(variant(1, path), MOMENT_S)], [application()], [path])
            calls = Calls(next(iter(executor.device.peers.gateways)))
            for id in range(WARM_UP + COUNTED):
                if id == WARM_UP:
                    sys.setprofile(calls)
                gateway.grant({id: rows(1, seed=id)}, number=id)
                await gateway.answer(id)
            sys.setprofile(None)
        assert executor.at_once == [True] * (WARM_UP + COUNTED)
        return calls.reads

    reads = uvloop.run(count())
    assert len(reads) == COUNTED
    # Most batches; now and then one settles the accounts of many.
    usual = sorted(reads, key=Counter.total)[COUNTED // 2]
    # The test's own look at what runs as it is read is no part of the executor.
    usual = Counter({name: calls for name, calls in usual.items() if "InThisProcess" not in name})
    assert usual.total() <= CALLS, usual
