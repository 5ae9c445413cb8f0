"""A dispatched batch that finds its device idle runs as it is read."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import uvloop

from workers import identity
from workers.executor.device import DeviceService
from workers.executor.measuring import Measuring
from workers.executor.peers import Peers
from workers.executor.runtime import Runtime
from workers.executor.server import PeerServer
from workers.executor.watchdog import Watchdog
from workers.protocol.frame_connection import encode
from workers.protocol.frames import RequestShape, RunBatch, TensorHeader, Withdraw

from .harness import Executor, application, resident, rows, variant

#: what the device believes of a batch; short enough to run in the event loop's own thread
MOMENT_S = 0.00002


class InThisProcess(Executor):
    """The same executor, where the test can look into it.

    Attributes:
        at_once: of each batch whether it ran as it was read.
    """

    async def __aenter__(self) -> InThisProcess:
        self.device = DeviceService(self.info, Runtime(self.info, Watchdog()), Peers(), 4096, 0.05)
        self.at_once: list[bool] = []
        ask = self.device.device_loop.start

        def noted(batch, loaded) -> bool:
            self.at_once.append(ask(batch, loaded))
            return self.at_once[-1]

        self.device.device_loop.start = noted
        self._tasks = [asyncio.create_task(self.device.device_loop.run()), asyncio.create_task(self.device.tick())]
        server = PeerServer(self.device, Measuring(self.device), identity.of(self.info))
        self._listener = await asyncio.get_running_loop().create_unix_server(
            server.connection, self.endpoint.removeprefix("unix:")
        )
        self.node = await self.peer("node")
        return self

    async def __aexit__(self, *_error) -> None:
        for peer in self.peers:
            peer.connection.close()
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.device.close()


def on_its_own_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on the executor's loop, whose clock counts whole milliseconds."""

    @functools.wraps(test)
    def run(tiny_models: dict[str, Path], tmp_path: Path) -> None:
        uvloop.run(test(tiny_models, tmp_path))

    return run


@on_its_own_loop
async def test_however_many_follow_each_other_in_a_millisecond_none_is_queued(tiny_models, tmp_path):
    async with InThisProcess(tmp_path) as executor:
        path = tiny_models["quick"]
        gateway = await executor.applied(1, [resident(variant(1, path), MOMENT_S)], [application()], [path])
        for id in range(1, 101):
            gateway.grant({id: rows(1, seed=id)}, number=id)
            await gateway.answer(id)
    assert executor.at_once == [True] * 100


@on_its_own_loop
async def test_of_batches_that_come_in_one_piece_only_those_of_its_first_moment_run_before_others_are_received(
    tiny_models, tmp_path
):
    async with InThisProcess(tmp_path) as executor:
        # A millisecond a row, whatever the profile says.
        path = tiny_models["medium"]
        gateway = await executor.applied(1, [resident(variant(1, path), MOMENT_S)], [application()], [path])
        array = rows(1)["x"]
        shape = RequestShape(1, (TensorHeader("x", "FP32", array.shape, array.nbytes),))
        queries = {number: tuple((10 * number + k, 0, 2.0) for k in range(4)) for number in (1, 2, 3)}
        grants = [RunBatch(number, "app", 1, 16, (shape,), some) for number, some in queries.items()]
        sent = [b"".join(encode(grant, [array.tobytes()] * 4)) for grant in grants]
        gateway.connection.transport.write(sent[0] + sent[1])
        for id in (*range(10, 14), *range(20, 24)):
            await gateway.answer(id)
        gateway.connection.transport.write(sent[2])
        await gateway.answer(30)
    assert executor.at_once == [True, False, True]


async def test_a_backlog_of_quick_batches_leaves_the_loop_to_others(tiny_models, tmp_path):
    """Frames are read between quick batches: a cancelled query is not answered."""
    path, app = tiny_models["heavy"], application(slo_s=600.0)
    async with Executor(tmp_path, queue_rows="4096") as executor:
        # Milliseconds a row, whatever the profile says: the first batch tells, later ones go to the thread.
        made = resident(variant(1, path), MOMENT_S, 1)
        gateway = await executor.applied(1, [made], [app], [path])
        x = {"x": np.ones((1, 4), np.float32)}
        ids = [gateway.dispatch(x, budget_s=600.0) for _ in range(600)]
        await gateway.answer(ids[0])
        gateway.connection.send(Withdraw(ids[-1]))
        for id in ids[:-1]:
            await gateway.answer(id)
        after = gateway.dispatch(x, budget_s=600.0)
        await gateway.answer(after)
    assert ids[-1] not in gateway.answers
