"""Gateways and an executor on several boxes: over mutual TLS, with one core that decides and one that stands by."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import msgspec
import numpy as np
import pytest

from tests.executor.harness import WIDE, Executor, application, resident, variant
from tests.gateway.conftest import AUTH, KEY, ROWS, GatewayProcess, config, free_ports, wait_for
from tests.grpc_load import GrpcLoad
from tests.load import Load
from tests.transport.worlds import NOW, member
from workers.protocol.control import GatewayConfig
from workers.protocol.frames import Cluster
from workers.protocol.specs import DevicePlan, PeerSpec, PlanSpec, Route
from workers.transport.authority import ClusterAuthority

APP = application("app", 60.0, WIDE)
PATH = "/v2/models/app/infer"
#: boxes of this name are elsewhere, whatever runs there
ELSEWHERE = "another-boot"


def query(rows: int = 1) -> dict:
    data = np.arange(rows * 4, dtype=np.float32)
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": data.tolist()}]}


async def until(condition, what: str):
    return await asyncio.to_thread(wait_for, condition, what)


class Boxes:
    """A node and gateways that have certificates of one cluster."""

    def __init__(self, gateways, models, folder) -> None:
        self.make, self.models, self.folder = gateways, models, folder
        self.authority = ClusterAuthority.make()
        self.ports = dict(zip(("far", "one", "two"), free_ports(3), strict=True))
        self.node = member(self.authority, folder / "node.pem", "node", "far", NOW)
        self.members = {}
        for name in ("one", "two"):
            file = folder / name / "members" / f"gateway-{name}-gateway.pem"
            file.parent.mkdir(parents=True)
            self.members[name] = member(self.authority, file, "gateway", f"{name}-gateway", NOW)
        self.executor: Executor | None = None

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def cluster(self, *listed: str) -> None:
        """Tell the executor who may connect."""
        cores = tuple(
            (f"{name}-gateway", self.members[name].key_hash, rank)
            for rank, name in enumerate(("one", "two"), 1)
            if name in listed
        )
        self.executor.node.connection.send(Cluster(self.node.pem, cores))

    def gateway(self, name: str, before: GatewayProcess | None = None, **settings: str) -> GatewayProcess:
        """``before``: an ended one, whose ports it gets."""
        own = {"NEREUS_NODE_NAME": name, "NEREUS_CORE": self.address(name), **settings}
        return self.make(self.config(1, "box/cpu0", "far"), home=self.folder / name, beside=before, **own)

    def config(self, version: int, device: str, address: str) -> GatewayConfig:
        """A plan with one device of the node."""
        plan = PlanSpec(
            version,
            (DevicePlan(device, "", (self.resident,), node="far", address=self.address(address)),),
            (Route("app", device, 1.0),),
        )
        peers = (
            PeerSpec("gateway", "one-gateway", self.members["one"].key_hash, 1, ELSEWHERE, self.address("one")),
            PeerSpec("gateway", "two-gateway", self.members["two"].key_hash, 2, ELSEWHERE, self.address("two")),
            PeerSpec("node", "far", self.node.key_hash, machine=ELSEWHERE),
        )
        return msgspec.structs.replace(config(plan, [APP]), peers=peers)

    @property
    def resident(self):
        return resident(variant(1, self.models["quick"], name="quick"), 0.001, max_batch=8)


@pytest.fixture
async def boxes(gateways, tiny_models, tmp_path):
    made = Boxes(gateways, tiny_models, tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        (tmp_path / "far").mkdir()
        executor = Executor(tmp_path / "far", address=made.address("far"))
        made.executor = await stack.enter_async_context(executor)
        executor.apply(1, [made.resident], [APP], [tiny_models["quick"]])
        made.cluster("one", "two")
        yield made


async def asked(gateway: GatewayProcess, rows: int = 1) -> int:
    async with httpx.AsyncClient(headers=AUTH, timeout=120) as http:
        answer = await http.post(gateway.url + PATH, json=query(rows))
    if answer.status_code == 200:
        (output,) = answer.json()["outputs"]
        assert output["shape"][0] == rows
    return answer.status_code


async def test_queries_reach_a_device_and_a_core_on_other_boxes(boxes):
    first = boxes.gateway("one")
    await until(first.ready, "the core has the device of the other box")
    assert await asked(first) == 200
    assert await asked(first, ROWS) == 200
    second = boxes.gateway("two")
    # Its own core stands by, and the first one's decides.
    await until(second.ready, "the front reaches the core of the other box")
    assert [await asked(second, rows) for rows in (1, ROWS)] == [200, 200]
    assert first.health()["devices"].keys() == {"box/cpu0"}

    first.process.kill()
    await until(lambda: second.health()["devices"].get("box/cpu0", {}).get("warm"), "the second core has the device")
    assert await asked(second) == 200

    # Back again, it stands by: who leads goes on leading.
    first = boxes.gateway("one")
    await until(first.ready, "the first front reaches the second core")
    assert [await asked(first), await asked(second)] == [200, 200]
    assert second.stop() == 0
    await until(lambda: asyncio.run(asked(first)) == 200, "the first core leads again")


async def test_no_query_fails_while_gateways_are_restarted_one_by_one(boxes):
    """Of clients that use the other address when a connection is refused."""
    running = {name: boxes.gateway(name) for name in ("one", "two")}
    for gateway in running.values():
        await until(gateway.ready, "both gateways serve")
    with Load(running["one"].url, KEY, "app", 40, others=[running["two"].url]) as load:
        for name in ("one", "two", "one"):
            assert await asyncio.to_thread(running[name].stop) == 0
            running[name] = boxes.gateway(name, running[name])
            await until(running[name].ready, "both gateways serve again")
    assert load.report.errors == [] and load.report.ok == load.report.sent


def answered(gateway: GatewayProcess) -> bool:
    """Whether a gateway has answered a query since it was started."""
    return 'outcome="in_time"' in gateway.http.get("/metrics").text


async def test_no_query_of_grpc_clients_fails_while_gateways_are_restarted_one_by_one(boxes):
    """Their channels know both addresses, and learn that a gateway stops before it takes no more queries."""
    running = {name: boxes.gateway(name) for name in ("one", "two")}
    for gateway in running.values():
        await until(gateway.ready, "both gateways serve")
    with GrpcLoad([gateway.grpc for gateway in running.values()], KEY, "app", 20) as load:
        for name in ("one", "two", "one"):
            for gateway in running.values():
                await until(lambda one=gateway: answered(one), "a channel that uses all addresses has reached it")
            await until(lambda seen=load.sent.copy(): len(load.sent - seen) == 4, "every client asks")
            assert await asyncio.to_thread(running[name].stop) == 0
            running[name] = boxes.gateway(name, running[name])
            await until(running[name].ready, "both gateways serve again")
    assert load.errors == []


async def test_a_gateway_that_is_not_listed_is_refused_and_one_that_is_revoked_is_cut(boxes):
    boxes.cluster("one")
    first, second = boxes.gateway("one"), boxes.gateway("two")
    await until(first.ready, "the listed gateway has the device")
    boxes.cluster()
    await until(lambda: not first.ready(), "the revoked gateway is cut")
    assert await asked(first) == 503
    boxes.cluster("two")
    await until(second.ready, "the one that is listed now has it")
    await until(first.ready, "the first front uses the second core")
    assert [await asked(second), await asked(first)] == [200, 200]


async def test_a_device_that_was_lost_is_not_taken_back_once_the_plan_leaves_it_out(boxes, control_plane):
    gateway = boxes.gateway("one", NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t")
    await until(gateway.ready, "the core has the device")
    boxes.cluster()
    await until(lambda: not gateway.ready(), "the device is lost")
    await until(lambda: control_plane.connection, "the gateway has joined")
    # Nobody listens there, so that the routes of the plan before stay.
    control_plane.send(boxes.config(2, "box/cpu1", "two"))
    await until(lambda: gateway.health()["plan"]["newest"] == 2, "the gateway has the plan")
    await until(lambda: gateway.health()["devices"].keys() == {"box/cpu1"}, "the device that was lost is given up")
