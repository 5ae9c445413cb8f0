"""A node daemon that is killed under load.

Its real executor serves on, and the next daemon goes on with it.
"""

from __future__ import annotations

import asyncio
import os
import signal

import httpx2
import msgspec

from tests.executor.harness import Peer, rows
from tests.node.test_daemon import order, variant, warm
from tests.node.test_process import node, real_config
from tools.waiting import eventually_async
from workers.node import devices
from workers.protocol import control
from workers.protocol.frames import ExecutorState, Results


class Load:
    """Queries one behind the other, until stopped; every answer is kept."""

    def __init__(self, peer: Peer):
        self.peer = peer
        self.answers: list = []
        self._stop = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stop:
            self.answers.append((await self.peer.query(rows(2), application="digits"))[0])

    async def more(self, count: int) -> None:
        until = len(self.answers) + count
        await eventually_async(lambda: len(self.answers) >= until or (self._task.done() and self._task.result()))

    async def stop(self) -> None:
        self._stop = True
        await self._task


async def pid_of_executor(settings) -> int:
    async with httpx2.AsyncClient(base_url=settings.node_http.url, trust_env=False, timeout=60) as client:
        return (await client.get("/health")).json()["devices"][0]["pid"]


async def test_a_killed_daemon_costs_no_query_and_its_successor_goes_on(settings, control_plane, tiny_models):
    digest = control_plane.add_blob(tiny_models["heavy"].read_bytes())
    spec = msgspec.structs.replace(variant(1, digest), accuracy=90.0, accuracy_normalized=100.0)
    control_plane.greeting = [control.encode(real_config(5, spec))]
    (device,) = devices.find(settings)
    async with node(settings) as daemon:
        await control_plane.receive(control.DeviceStates, warm(1, 5))
        executor = await pid_of_executor(settings)
        peer = await Peer().connect(device.endpoint, "gateway")
        await peer.next(ExecutorState)
        load = Load(peer)
        await load.more(20)
        job = order(3, spec)
        # Nothing is measured beyond a batch that takes longer than the SLO, as one of 4 may on a busy machine.
        job = msgspec.structs.replace(job, application=msgspec.structs.replace(job.application, slo_s=60.0))
        await control_plane.say(job)
        await control_plane.receive(control.ProfileProgress, lambda m: m.phase == "measuring")
        daemon.kill()
        await daemon.wait()
        control_plane.received.clear()
        await load.more(50)

        async with node(settings):
            await control_plane.receive(control.DeviceStates, warm(1, 5))
            await control_plane.receive(control.NodeStats, lambda m: m.devices and m.devices[0].plan_version == 5)
            assert await pid_of_executor(settings) == executor
            # The control plane orders again what the node does not report: measured on, or measured already.
            await control_plane.say(job)
            done = await control_plane.receive(control.ProfileDone)
            assert [point.batch for point in done.points] == [1, 2, 4, 8]
            await control_plane.say(real_config(6, spec))
            await control_plane.receive(control.DeviceStates, warm(1, 6))
            await load.more(20)
            await load.stop()
            assert {type(answer) for answer in load.answers} == {Results}

            control_plane.received.clear()
            os.kill(executor, signal.SIGSEGV)
            crashed = await control_plane.receive(control.DeviceStates, lambda m: "lost" in m.devices[0].detail)
            assert "SIGSEGV" in crashed.devices[0].detail or "Segmentation fault" in crashed.devices[0].detail
            control_plane.received.clear()
            await control_plane.receive(control.DeviceStates, warm(1, 6))
            assert await pid_of_executor(settings) != executor
