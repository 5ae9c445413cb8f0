"""All nodes and a gateway, in one process, which obeys the methods of :class:`Cluster`."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from benchmarks.scale.filling import TOKEN, TYPES
from workers import log
from workers.link import MemberLink, Membership
from workers.protocol import control
from workers.protocol.specs import (
    ApplicationStats,
    DeviceInfo,
    DevicePlan,
    DeviceState,
    DeviceStats,
    Reach,
    VariantSpec,
    VariantStats,
)
from workers.trust.member import MemberIdentity

#: seconds that a node takes to load what a plan wants, before it reports that
LOAD_S = 0.05
#: queries/s of an application per device of the cluster
RATE = 0.5


class Member:
    kind = ""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.name = name
        self.link = MemberLink(
            Membership(self.kind, name, url, folder, TOKEN),
            join=lambda _address: self.join(),
            on_message=self._take,
            on_up=self._joined,
            identity=MemberIdentity(folder / f"{self.kind}-{name}.pem", self.kind, name),
        )
        self.config: control.NodeConfig | control.GatewayConfig | None = None
        self.joined_at = 0.0
        #: when it first held a plan, by version
        self.held: dict[int, float] = {}
        self.sent = self.received = 0

    async def run(self) -> None:
        linking = asyncio.create_task(self.link.run())
        # Members' seconds do not end together.
        await asyncio.sleep(random.uniform(0.0, 1.0))
        while not linking.done():
            if self.link.up:
                self.send(self.second())
            await asyncio.sleep(1.0)

    def send(self, message: control.FromMember) -> None:
        self.sent += 1
        self.link.send(message)

    def _joined(self) -> None:
        self.joined_at = time.monotonic()

    def _take(self, message: control.ToMember) -> None:
        self.received += 1
        if isinstance(message, control.Configuration):
            self.config = message
            self.held.setdefault(message.plan.version, time.monotonic())
            self.adopt()

    @property
    def version(self) -> int:
        return self.config.plan.version if self.config else 0

    @property
    def devices(self) -> tuple[DevicePlan, ...]:
        return self.config.plan.devices if self.config else ()

    @property
    def holds(self) -> dict:
        """The part of a report on the configuration held."""
        return {"plan_version": self.version, "config_hash": self.config.hash if self.config else ""}

    def join(self) -> control.Join:
        raise NotImplementedError

    def adopt(self) -> None:
        pass

    def second(self) -> control.MemberStats:
        raise NotImplementedError


class Node(Member):
    kind = "node"

    def __init__(self, url: str, number: int, devices: int, folder: Path) -> None:
        super().__init__(url, f"node-{number:03}", folder)
        self._type = list(TYPES)[number % len(TYPES)]
        self._refs = [f"{self.name}/cpu{index}" for index in range(devices)]

    def join(self) -> control.Join:
        infos = tuple(
            DeviceInfo(ref, "cpu", self._type, "cores", (i,), None, 2**34, f"unix:/{ref}", f"{self.name}:{7000 + i}")
            for i, ref in enumerate(self._refs)
        )
        return control.JoinNode(name=self.name, machine=f"box of {self.name}", devices=infos)

    def adopt(self) -> None:
        asyncio.get_running_loop().call_later(LOAD_S, lambda: self.send(self._states()))

    def _held(self) -> dict[str, list[VariantSpec]]:
        """Its variants by device."""
        planned = {one.device: [held.variant for held in one.residents] for one in self.devices}
        return {ref: planned.get(ref, []) for ref in self._refs}

    def _states(self) -> control.DeviceStates:
        held = self._held().items()
        states = [DeviceState(ref, "up", self.version, tuple(sorted(one.id for one in some))) for ref, some in held]
        return control.DeviceStates(devices=tuple(states))

    def second(self) -> control.NodeStats:
        devices = []
        for ref, held in self._held().items():
            variants = tuple(VariantStats(one.id, one.application, 20, 10, 0.4, 1.0) for one in held)
            busy, queued = random.uniform(0.2, 0.9), random.randrange(5)
            devices.append(DeviceStats(ref, busy, 0.0, queued, 2**30, self.version, variants))
        return control.NodeStats(jobs=(), devices=tuple(devices), **self.holds)


class Gateway(Member):
    kind = "gateway"

    def __init__(self, url: str, devices: int, folder: Path) -> None:
        super().__init__(url, "front", folder)
        self._rate = RATE * devices

    def join(self) -> control.Join:
        return control.JoinGateway(name=self.name, machine="box of front", address="http://front:8000")

    def second(self) -> control.GatewayStats:
        names = [spec.name for spec in self.config.applications] if self.config else []
        arrived = max(1, round(self._rate / max(1, len(names)) * random.uniform(0.9, 1.1)))
        counts = ApplicationStats(arrived, arrived, arrived, 0, 0, 0, 90.0 * arrived, 100.0 * arrived, 40.0, 90.0)
        return control.GatewayStats(
            applications=dict.fromkeys(names, counts),
            ready=True,
            serving=tuple(names),
            reach=Reach(reached=tuple(device.device for device in self.devices)),
            **self.holds,
        )


class Cluster:
    def __init__(self, url: str, nodes: int, devices: int, folder: Path) -> None:
        shares = [devices // nodes + (number < devices % nodes) for number in range(nodes)]
        self.members: list[Member] = [Node(url, number, share, folder) for number, share in enumerate(shares)]
        self.members.append(Gateway(url, devices, folder))

    def state(self) -> dict:
        """Members with a configuration, their plans, and messages so far."""
        members = self.members
        return {
            "members": len(members),
            "configured": sum(member.link.up and member.config is not None for member in members),
            "why": sorted({member.link.detail for member in members if not member.link.up})[:5],
            "last_join": max(member.joined_at for member in members),
            "version": max(member.version for member in members),
            "oldest": min(member.version for member in members),
            "sent": sum(member.sent for member in members),
            "received": sum(member.received for member in members),
        }

    def hold(self, version: int) -> dict:
        """When the first and the last member held this plan or a later one; {}: not all do."""
        moments = [
            min((at for held, at in member.held.items() if held >= version), default=None) for member in self.members
        ]
        return {} if None in moments else {"first": min(moments), "last": max(moments)}

    def cut(self) -> float:
        """End all links at once, without a close; returns when."""
        for member in self.members:
            if member.link.up:
                member.link._socket.transport.abort()
        return time.monotonic()


async def _play(pipe: Connection, url: str, nodes: int, devices: int, folder: Path) -> None:
    cluster = Cluster(url, nodes, devices, folder)
    running = [asyncio.create_task(member.run()) for member in cluster.members]
    over = asyncio.get_running_loop().create_future()

    def answer() -> None:
        try:
            name, *given = pipe.recv()
        except EOFError:
            over.set_result(None)
            return
        pipe.send(getattr(cluster, name)(*given))

    asyncio.get_running_loop().add_reader(pipe.fileno(), answer)
    await over
    for task in running:
        task.cancel()


def play(pipe: Connection, url: str, nodes: int, devices: int) -> None:
    log.configure("scale", "critical")
    with tempfile.TemporaryDirectory(prefix="scale-members-") as keys:
        uvloop.run(_play(pipe, url, nodes, devices, Path(keys)))
