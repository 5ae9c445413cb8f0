"""All nodes and a gateway in one process.

    python -m benchmarks.scale.members URL NODES DEVICES

It obeys lines on its standard input and answers each with a line of JSON: ``state`` (joined members, configurations,
bytes and messages so far), ``hold VERSION`` (seconds of this machine's steady clock at which the first and the last
member held that plan or a later one, once all do), ``cut`` (all links at once, without a close; answers when).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from benchmarks.scale.registry import TOKEN, TYPES
from workers.link import LinkTiming
from workers.protocol import control
from workers.protocol.specs import (
    ApplicationStats,
    DeviceInfo,
    DeviceState,
    DeviceStats,
    Reach,
    VariantStats,
)
from workers.trust.member import MemberIdentity

#: seconds that a node takes to load what a plan wants, before it reports that
LOAD_S = 0.05
#: queries/s of an application per device of the cluster
RATE = 0.5
#: of the real members' links
TIMING = LinkTiming()


class Member:
    """One member's connection, made again whenever it ends.

    Subclasses say with what it joins and what it reports.
    """

    kind = ""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self._url = f"ws{url.removeprefix('http')}/ws/{self.kind}/"
        self.name = name
        self._secret = TOKEN
        self.socket = None
        self.config: control.NodeConfig | control.GatewayConfig | None = None
        # Each join asks for a certificate, with one key.
        identity = MemberIdentity(folder / f"{self.kind}-{name}.pem", self.kind, name)
        self._joining = {"name": name, "certificate_request": identity.request(), "machine": f"box of {name}"}
        self._read = 0
        self.joined_at = 0.0
        self.why = ""
        #: when it first held a plan, by version
        self.held: dict[int, float] = {}
        self.sent = self.received = self.bytes_received = self.connections = self.failures = self.refused = 0

    async def run(self) -> None:
        tries = 0
        while True:
            try:
                await self._connection()
                tries = 0
                self.why = "closed"
            except (OSError, TimeoutError, WebSocketException) as error:
                self.failures += 1
                self.why = f"{type(error).__name__}: {error}"[:80]
            self.socket, self.joined_at = None, 0.0
            tries += 1
            longest = min(TIMING.longest, TIMING.first * 2 ** min(tries - 1, 20))
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))

    async def _connection(self) -> None:
        headers = {"Authorization": f"Bearer {self._secret}"}
        async with connect(
            self._url,
            additional_headers=headers,
            compression=None,
            max_size=2**26,
            open_timeout=TIMING.connect,
            ping_interval=TIMING.ping_every,
            ping_timeout=TIMING.ping_answer,
            proxy=None,
        ) as socket:
            self.socket = socket
            self._read = 0
            self.connections += 1
            await self.say(self.join())
            running: list[asyncio.Task] = []
            try:
                async for text in socket:
                    self.received += 1
                    self._read += 1
                    self.bytes_received += len(text)
                    message = self.decode(text)
                    if isinstance(message, control.Joined):
                        self._secret = message.credential or self._secret
                        self.joined_at = time.monotonic()
                        self.refused += not (message.issued and message.issued.certificate)
                        running.append(asyncio.create_task(self._report()))
                    elif isinstance(message, control.Configuration):
                        self.config = message
                        self.held.setdefault(message.plan.version, time.monotonic())
                        # Nothing that the member does with it keeps it from reading on.
                        running.append(asyncio.create_task(self.adopt()))
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def say(self, message: control.FromMember) -> None:
        self.sent += 1
        await self.socket.send(control.encode(message))

    async def _report(self) -> None:
        # Members' seconds do not end together.
        await asyncio.sleep(random.uniform(0.0, 1.0))
        while True:
            await self.say(self.second())
            await asyncio.sleep(1.0)

    @property
    def config_state(self) -> dict:
        """The part of a report on the configuration held.

        :class:`workers.link.MemberLink` and its users make it in the same way.
        """
        config = self.config
        return {
            "at": 0.0,
            "received": self._read,
            "plan_version": config.plan.version if config is not None else 0,
            "config_hash": config.hash if config is not None else "",
        }

    def decode(self, text: str):
        raise NotImplementedError

    def join(self) -> control.Join:
        raise NotImplementedError

    async def adopt(self) -> None:
        pass

    def second(self) -> control.MemberStats:
        raise NotImplementedError


class Node(Member):
    """A node with some devices, all of which do what the plan says."""

    kind = "node"

    def __init__(self, url: str, number: int, devices: int, folder: Path) -> None:
        super().__init__(url, f"node-{number:03}", folder)
        kind = list(TYPES)[number % len(TYPES)]
        self._devices = [
            DeviceInfo(
                f"{self.name}/cpu{index}",
                "cpu",
                kind,
                "cores",
                (index,),
                None,
                2**34,
                f"unix:/{self.name}-{index}",
                f"{self.name}:{7000 + index}",
            )
            for index in range(devices)
        ]

    def decode(self, text: str):
        return control.decode_to_node(text)

    def join(self) -> control.Join:
        return control.JoinNode(**self._joining, devices=tuple(self._devices))

    def _residents(self) -> dict[str, list]:
        plan = self.config.plan if self.config else None
        return {device.device: list(device.residents) for device in plan.devices} if plan else {}

    async def adopt(self) -> None:
        await asyncio.sleep(LOAD_S)
        await self.say(self._states())

    def _states(self) -> control.DeviceStates:
        residents = self._residents()
        version = self.config.plan.version if self.config else 0
        return control.DeviceStates(
            devices=tuple(
                DeviceState(
                    device.id, "up", version, tuple(sorted(one.variant.id for one in residents.get(device.id, ())))
                )
                for device in self._devices
            )
        )

    def second(self) -> control.NodeStats:
        residents, version = self._residents(), self.config.plan.version if self.config else 0
        return control.NodeStats(
            jobs=(),
            devices=tuple(
                DeviceStats(
                    device.id,
                    random.uniform(0.2, 0.9),
                    0.0,
                    random.randrange(5),
                    2**30,
                    version,
                    tuple(
                        VariantStats(one.variant.id, one.variant.application, 20, 10, 0.4, 1.0)
                        for one in residents.get(device.id, ())
                    ),
                )
                for device in self._devices
            ),
            **self.config_state,
        )


class Gateway(Member):
    kind = "gateway"

    def __init__(self, url: str, devices: int, folder: Path) -> None:
        super().__init__(url, "front", folder)
        self._rate = RATE * devices

    def decode(self, text: str):
        return control.decode_to_gateway(text)

    def join(self) -> control.Join:
        return control.JoinGateway(**self._joining, address="http://front:8000")

    def second(self) -> control.GatewayStats:
        names = [spec.name for spec in self.config.applications] if self.config else []
        arrived = max(1, round(self._rate / max(1, len(names)) * random.uniform(0.9, 1.1)))
        counts = ApplicationStats(arrived, arrived, arrived, 0, 0, 0, 90.0 * arrived, 100.0 * arrived, 40.0, 90.0)
        return control.GatewayStats(
            applications=dict.fromkeys(names, counts),
            ready=True,
            serving=tuple(names),
            reach=Reach(reached=tuple(device.device for device in self.config.plan.devices) if self.config else ()),
            **self.config_state,
        )


class Cluster:
    def __init__(self, url: str, nodes: int, devices: int, folder: Path) -> None:
        shares = [devices // nodes + (number < devices % nodes) for number in range(nodes)]
        self.members: list[Member] = [Node(url, number, share, folder) for number, share in enumerate(shares)]
        self.members.append(Gateway(url, devices, folder))

    def state(self) -> dict:
        members = self.members
        return {
            "members": len(members),
            "joined": sum(member.joined_at > 0 for member in members),
            "configured": sum(member.joined_at > 0 and member.config is not None for member in members),
            "why": sorted({member.why for member in members if member.why})[:5],
            "last_join": max((member.joined_at for member in members), default=0.0),
            "version": max((member.config.plan.version for member in members if member.config), default=0),
            "oldest": min(member.config.plan.version if member.config else 0 for member in members),
            **{
                name: sum(getattr(member, name) for member in members)
                for name in ("sent", "received", "bytes_received", "connections", "failures", "refused")
            },
        }

    def hold(self, version: int) -> dict:
        moments = []
        for member in self.members:
            found = [at for held, at in member.held.items() if held >= version]
            if not found:
                return {"members": len(self.members), "hold": len(moments)}
            moments.append(min(found))
        return {"first": min(moments), "last": max(moments)}

    def cut(self) -> dict:
        for member in self.members:
            if member.socket is not None:
                member.socket.transport.abort()
        return {"at": time.monotonic()}


async def main(url: str, nodes: int, devices: int, folder: Path) -> None:
    cluster = Cluster(url, nodes, devices, folder)
    running = [asyncio.create_task(member.run()) for member in cluster.members]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        match line.decode().split():
            case ["state"]:
                answer = cluster.state()
            case ["hold", version]:
                answer = cluster.hold(int(version))
            case ["cut"]:
                answer = cluster.cut()
            case _:
                answer = {"error": f"no such command: {line!r}"}
        print(json.dumps(answer), flush=True)
    for task in running:
        task.cancel()


if __name__ == "__main__":
    import uvloop

    with tempfile.TemporaryDirectory(prefix="scale-members-") as keys:
        uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(keys)))
