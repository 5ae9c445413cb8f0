"""A dispatched batch that finds its device idle runs as it is read.

It runs by the shortest way that its model allows.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from workers import identity
from workers.executor import answers
from workers.executor.batch import admit
from workers.executor.device import DeviceService
from workers.executor.measuring import Measuring
from workers.executor.peers import Peers
from workers.executor.request_shapes import CheckedShapes
from workers.executor.runtime import Runtime
from workers.executor.server import PeerServer
from workers.executor.watchdog import Watchdog
from workers.protocol.frame_connection import encode
from workers.protocol.frames import ReceivedBatch, RequestShape, RunBatch, TensorHeader

from .harness import Executor, application, resident, rows, variant
from .test_dispatched_data import LOOK_UP, look_up

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
        self._tasks = [asyncio.create_task(self.device.run()), asyncio.create_task(self.device.tick())]
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
    """Run a test on the loop that an executor runs on.

    The loop's clock counts whole milliseconds.
    """

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


def test_a_query_that_the_model_raises_for_does_not_make_later_ones_take_the_longer_way(tmp_path):
    path = look_up(tmp_path / "m.onnx")
    info = Executor(tmp_path).info
    model, shapes = Runtime(info, Watchdog()).load(str(path), LOOK_UP), CheckedShapes(application(signature=LOOK_UP))
    assert model.check_bindings() == ""
    short = model.io_bindings.most_rows
    assert short > 2

    def granted(*ids: int):
        shape = RequestShape(1, (TensorHeader("ids", "INT64", (1, 1), 8),))
        message = RunBatch(1, "app", 1, 16, (shape,), tuple((id, 0, 1.0) for id in ids))
        raw = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ReceivedBatch)
        batch, wrong = admit(raw, memoryview(np.array(ids, np.int64).tobytes()), shapes, None, 0.0)
        assert not wrong
        return answers.of_batch(model, batch)

    done, failed, _ = granted(3, 77)
    assert [place for place, _ in failed] == [1]
    assert bytes(done[0].body[0]) == np.array([6, 7], np.float32).tobytes()
    assert model.io_bindings.most_rows == short
    done, failed, _ = granted(1, 4)
    assert not failed
    assert b"".join(done[0].body) == np.array([2, 3, 8, 9], np.float32).tobytes()
