"""Gateways and an executor on several boxes, over mutual TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import httpx2
import msgspec
import numpy as np
import pytest

from tests.executor.harness import WIDE, Executor, application, resident, variant
from tests.gateway.conftest import AUTH, KEY, ROWS, GatewayProcess, config, free_ports, gateway_options, until
from tests.gateway.conftest import application as stand_in
from tests.gateway.conftest import plan as stand_in_plan
from tests.gateway.test_failures import X
from tests.grpc_load import GrpcLoad
from tests.load import Load
from tests.trust.worlds import NOW, member
from workers.gateway.gateway import Gateway
from workers.protocol.control import GatewayConfig, IssuedCertificate, JoinGateway
from workers.protocol.frames import Cluster
from workers.protocol.specs import DevicePlan, PeerSpec, PlanSpec, Route
from workers.trust.authority import Authority
from workers.trust.member import MemberIdentity, certify

APP = application("app", 60.0, WIDE)
PATH = "/v2/models/app/infer"
#: boxes of this name are elsewhere, whatever runs there
ELSEWHERE = "another-boot"


def query(rows: int = 1) -> dict:
    data = np.arange(rows * 4, dtype=np.float32)
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": data.tolist()}]}


class Boxes:
    def __init__(self, gateways, models, folder) -> None:
        self.make, self.models, self.folder = gateways, models, folder
        self.authority = Authority.make()
        self.ports = dict(zip(("far", "one", "two"), free_ports(3), strict=True))
        self.node = member(self.authority, folder / "node.pem", "node", "far", NOW)
        #: of the gateways' keys
        self.hashes: dict[str, str] = {}
        for name in ("one", "two"):
            self.key_file(name).parent.mkdir(parents=True)
            made = member(self.authority, self.key_file(name), "gateway", f"{name}-gateway", NOW)
            self.hashes[name] = made.key_hash
        self.executor: Executor | None = None

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def cluster(self, *listed: str) -> None:
        cores = tuple(
            (f"{name}-gateway", self.hashes[name], rank)
            for rank, name in enumerate(("one", "two"), 1)
            if name in listed
        )
        self.executor.node.connection.send(Cluster(self.node.pem, cores))

    def key_file(self, name: str) -> Path:
        return self.folder / name / "members" / f"gateway-{name}-gateway.pem"

    def issue(self, join: JoinGateway) -> IssuedCertificate:
        """A certificate for the key that a gateway has by now; nobody lists that yet."""
        name = join.name.removesuffix("-gateway")
        issued = certify(self.authority, join.certificate_request, "gateway", join.name, NOW)
        self.hashes[name] = issued.key_hash
        return IssuedCertificate(certificate=issued.certificate, authorities=self.authority.trusted.decode())

    def gateway(
        self, name: str, before: GatewayProcess | None = None, stored: bool = True, **settings
    ) -> GatewayProcess:
        """Start a gateway.

        Args:
            before: an ended one, whose ports it gets.
            stored: whether its configuration is stored anew.
        """
        own = self.settings(name) | settings
        return self.make(self.config() if stored else None, home=self.folder / name, beside=before, **own)

    def settings(self, name: str) -> dict[str, str]:
        return {"NEREUS_NODE_NAME": name, "NEREUS_CORE": self.address(name)}

    def config(self, version: int = 1, device: str = "box/cpu0", address: str = "far") -> GatewayConfig:
        plan = PlanSpec(
            version,
            (DevicePlan(device, "", (self.resident,), node="far", address=self.address(address)),),
            (Route("app", device, 1.0),),
        )
        peers = (
            PeerSpec("gateway", "one-gateway", self.hashes["one"], 1, ELSEWHERE, self.address("one")),
            PeerSpec("gateway", "two-gateway", self.hashes["two"], 2, ELSEWHERE, self.address("two")),
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
    async with httpx2.AsyncClient(headers=AUTH, timeout=120) as http:
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
    """Clients use the other address when a connection is refused."""
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
    return 'outcome="in_time"' in gateway.http.get("/metrics").text


async def test_no_query_of_grpc_clients_fails_while_gateways_are_restarted_one_by_one(boxes):
    # Their channels know both addresses, and learn that a gateway stops before it takes no more queries.
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


def accepts(gateway: GatewayProcess) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", gateway.port)) == 0


def without_key(boxes: Boxes, gateway: GatewayProcess, **settings) -> list[GatewayProcess]:
    """Start gateway two again without its key's file; the first process is linked."""
    boxes.key_file("two").unlink()
    again = boxes.gateway("two", gateway, listens=False, **settings)
    if "NEREUS_GATEWAYS" not in settings:
        return [again]
    # The first may have another certificate by now: the second goes by what was stored before.
    return [again, boxes.gateway("two", gateway, stored=False, number=2, listens=False, **settings)]


@pytest.mark.parametrize("several", [{}, {"NEREUS_GATEWAYS": "2"}], ids=["alone", "of two"])
async def test_a_gateway_with_another_key_listens_once_others_know_it(boxes, control_plane, several):
    # Queries of clients that have another address do not fail while this one is refused.
    control_plane.issue = boxes.issue
    settings = {"NEREUS_CONTROL_URL": control_plane.url, "NEREUS_JOIN_TOKEN": "t"}
    first, second = boxes.gateway("one", **settings), boxes.gateway("two", **settings)
    for gateway in (first, second):
        await until(gateway.ready, "both gateways serve")
    await until(lambda: len(control_plane.connections) == 2, "both have joined")
    with Load(second.url, KEY, "app", 20, others=[first.url]) as load:
        assert await asyncio.to_thread(second.stop) == 0
        del control_plane.connections["two-gateway"]
        before = boxes.hashes["two"]
        processes = without_key(boxes, second, **settings, **several)
        await until(lambda: "two-gateway" in control_plane.connections, "it is linked before it listens")
        assert boxes.hashes["two"] != before
        assert not accepts(second)
        boxes.cluster("one", "two")
        control_plane.send(boxes.config())
        await until(lambda: accepts(second), "it listens")
        assert await asked(second) == 200
    assert load.report.errors == [] and load.report.ok == load.report.sent
    assert processes[-1].logged("key_not_listed") and not processes[-1].logged("no_core_found")


async def test_a_gateway_with_another_key_serves_from_its_own_box_without_the_control_plane(boxes, devices):
    """Once a device there is warm: that its core leads is not enough."""
    (only,) = devices("d0")
    own = stand_in_plan(1, {"d0": [("numbers", "big")]}, {"d0": only.endpoint})
    stored = msgspec.structs.replace(config(own, [stand_in("numbers")]), peers=boxes.config().peers)
    boxes.key_file("two").unlink()
    gateway = boxes.make(stored, home=boxes.folder / "two", listens=False, **boxes.settings("two"))
    await until(lambda: gateway.logged("executor_up"), "its core has the device")
    assert gateway.logged("key_not_listed") and not accepts(gateway)
    only.warm(("numbers", "big"))
    await until(lambda: accepts(gateway), "it listens")
    assert gateway.infer(X).status_code == 200
    assert not gateway.logged("no_core_found")


async def test_a_gateway_that_is_stopped_while_others_do_not_know_it_ends_at_once(boxes):
    boxes.key_file("two").unlink()
    gateway = boxes.gateway("two", listens=False)
    await until(lambda: gateway.logged("key_not_listed"), "it waits")
    assert await asyncio.to_thread(gateway.stop) == 0
    await until(lambda: gateway.logged("start_given_up"), "it says so")


async def test_a_gateway_that_no_core_takes_listens_all_the_same(boxes, monkeypatch):
    monkeypatch.setattr("workers.gateway.gateway.UNKNOWN_S", 0.2)
    options = gateway_options(boxes.folder / "two", **boxes.settings("two"))
    options.file.write_bytes(msgspec.json.encode(boxes.config()))
    boxes.key_file("two").unlink()
    other = MemberIdentity(boxes.key_file("two"), "gateway", "two-gateway")
    gateway = Gateway(options)
    joined: list[str] = []
    await gateway.start(lambda: joined.append(other.key_hash))
    try:
        async with httpx2.AsyncClient() as http:
            answer = await http.get(f"{options.settings.http.url}/v2/health/live")
        assert answer.status_code == 200 and joined == [other.key_hash]
    finally:
        await gateway.stop(0.1)


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
