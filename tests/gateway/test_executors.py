"""Connections to executors, over real unix sockets."""

from __future__ import annotations

import asyncio

import pytest

from workers.gateway.executors import Executors
from workers.protocol.frames import ExecutorState, FrameConnection, ToExecutor
from workers.transport.endpoints import Endpoint


class Listener:
    """Notes which devices sent a state."""

    def __init__(self) -> None:
        self.reported = asyncio.Event()

    def executor_state(self, device: str, state: ExecutorState) -> None:
        self.reported.set()

    def executor_lost(self, device: str, reason: str) -> None:
        pass

    def executor_ended(self, device: str, ending: object) -> None:
        pass


@pytest.mark.parametrize("turns", range(5))
async def test_connections_that_end_while_they_are_closed_are_closed(tmp_path, turns):
    def greet(connection, message, body) -> None:
        connection.send(ExecutorState("d0", 0, (), False, {}, 0.0))

    path = tmp_path / "d0.sock"
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: FrameConnection(ToExecutor, greet, lambda *_: None), str(path)
    )
    listener = Listener()
    executors = Executors("box-gateway", listener)
    executors.keep({"d0": Endpoint(f"unix:{path}")})
    await asyncio.wait_for(listener.reported.wait(), 60)
    # The connection's end is noticed some turns of the loop before the connection is closed.
    executors.get("d0")._closed.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.wait_for(executors.close(), 60)
    executors.keep({"d0": Endpoint(f"unix:{path}")})
    assert executors.states() == {}
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if task.get_name().startswith("executor-")]
