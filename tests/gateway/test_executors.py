"""Connections to executors, over real unix sockets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from workers.gateway.executors import Executors
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import ExecutorState, ToExecutor
from workers.trust.endpoints import Endpoint


class Listener:
    def __init__(self) -> None:
        self.reported = asyncio.Event()
        self.core = SimpleNamespace(ended=lambda *_: None)

    def executor_state(self, device: str, state: ExecutorState) -> None:
        self.reported.set()

    def executor_lost(self, device: str, reason: str) -> None:
        pass


async def listening(path, device: str) -> asyncio.Server:
    def greet(connection, message, body) -> None:
        connection.send(ExecutorState(device, 0, (), False, {}, 0.0))

    return await asyncio.get_running_loop().create_unix_server(
        lambda: FrameConnection(ToExecutor, greet, lambda *_: None), str(path)
    )


@pytest.mark.parametrize("turns", range(5))
async def test_connections_that_end_while_they_are_closed_are_closed(tmp_path, turns):
    path = tmp_path / "d0.sock"
    server = await listening(path, "d0")
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


class Adopting(Listener):
    executors: Executors

    def __init__(self) -> None:
        super().__init__()
        self.up: set[str] = set()
        self.lost: list[str] = []

    def executor_state(self, device: str, state: ExecutorState) -> None:
        self.up.add(device)
        if len(self.up) == 2:
            self.reported.set()

    def executor_lost(self, device: str, reason: str) -> None:
        self.lost.append(device)
        self.executors.keep({})


async def test_devices_that_leave_together_may_have_another_plan_adopted(tmp_path):
    servers = [await listening(tmp_path / device, device) for device in ("d0", "d1")]
    endpoints = {device: Endpoint(f"unix:{tmp_path / device}") for device in ("d0", "d1")}
    listener = Adopting()
    listener.executors = executors = Executors("box-gateway", listener)
    executors.keep(endpoints)
    await asyncio.wait_for(listener.reported.wait(), 60)
    executors.keep({})
    assert sorted(listener.lost) == ["d0", "d1"] and executors.states() == {}
    await asyncio.wait_for(executors.close(), 60)
    for server in servers:
        server.close()
