"""A front's queries while the cores that it may use come, go and misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from tests.trust.worlds import NOW, member
from tools.waiting import eventually_async
from workers.gateway import core_link
from workers.gateway.catalog import Catalog
from workers.gateway.core_link import CoreLink
from workers.gateway.cores import Cores
from workers.gateway.errors import Unavailable
from workers.gateway.executors import ExecutorConnection
from workers.gateway.metrics import GatewayMetrics
from workers.gateway.remote_front import Fronts
from workers.gateway.rollout import Rollout
from workers.protocol.control import GatewayConfig
from workers.protocol.frame_connection import FrameConnection, connect
from workers.protocol.frame_limits import QueryLimits
from workers.protocol.frames import Frame, Hello, RequestShape, TensorHeader
from workers.protocol.gateways import Answered, CoreStatus, FromCore, Status, SubmitQueries, ToCore
from workers.protocol.specs import PeerSpec, PlanSpec
from workers.trust.authority import Authority
from workers.trust.endpoints import Endpoint, TlsClient
from workers.trust.member import PeerIdentity

from .conftest import ROW, application, config, new_front, row_query

SPEC = application("numbers", 60.0)
(X,) = ROW.inputs


async def until(condition, what: str, seconds: float = 60.0):
    return await eventually_async(condition, seconds, why=what)


class Asking:
    def __init__(self) -> None:
        self.front = new_front()
        self.outcomes: dict[str, object] = {}

    def ask(self, number: str) -> None:
        def answer(_flight, outcome) -> None:
            assert number not in self.outcomes, "answered twice"
            self.outcomes[number] = outcome

        self.front.submit(SPEC, row_query(number), None, time.monotonic(), answer)


class HoldingCore:
    def __init__(self) -> None:
        self.catalog = Catalog(config(PlanSpec(1), [SPEC]))
        self.held: list = []
        self.submitted = 0

    def submit(self, flight) -> None:
        self.held.append(flight)
        self.submitted += 1

    def withdraw(self, flight, now: float) -> None:
        self.held.remove(flight)


def listed(*names: str) -> GatewayConfig:
    peers = tuple(PeerSpec("gateway", name, "0" * 64, rank, "", f"{name}:1") for rank, name in enumerate(names, 1))
    return msgspec.structs.replace(config(PlanSpec(1), [SPEC]), peers=peers)


async def test_queries_at_the_core_of_a_gateway_that_is_removed_get_an_answer(tmp_path):
    asking, elsewhere = Asking(), HoldingCore()
    fronts = Fronts(elsewhere, CoreStatus)
    await fronts.listen(tmp_path / "core")
    own = Rollout("two", 64, GatewayMetrics("two"))
    cores = Cores(
        asking.front,
        "two",
        own,
        lambda _: CoreLink(Endpoint(f"unix:{tmp_path / 'core'}"), Hello("front", "two"), asking.front),
    )
    await cores.configure(listed("one", "two"))
    await until(lambda: cores.choose() or cores.elsewhere, "the front uses the other core")
    asking.ask("q")
    await until(lambda: elsewhere.held, "the query is there")
    await cores.configure(listed("two"))
    # The own core has no device.
    await until(lambda: "q" in asking.outcomes, "the query is answered")
    assert isinstance(asking.outcomes["q"], Unavailable)
    assert asking.front.accounts.queries == 0 and not elsewhere.held
    await cores.close()
    await fronts.close()


class ScriptedCore:
    def __init__(self, answer) -> None:
        self._answer, self.asked = answer, 0

    async def listen(self, path: Path) -> asyncio.Server:
        return await asyncio.get_running_loop().create_unix_server(
            lambda: FrameConnection(ToCore, self._received, lambda *_: None), str(path)
        )

    def _received(self, connection: FrameConnection, message: Frame, body: memoryview) -> None:
        if isinstance(message, Hello):
            connection.send(Status(CoreStatus()))
        elif isinstance(message, SubmitQueries):
            self.asked += 1
            connection.send(*self._answer(message))


def answered(message: SubmitQueries, place: int, nbytes: int) -> tuple[Answered, list[bytes]]:
    outputs = ((TensorHeader("y", "FP32", (1, 4), 16),),)
    queries = tuple((number, place, 0.0) for number, *_ in message.queries)
    return Answered("d0", "big", 90.0, 100.0, 0.001, 1, outputs, queries), [bytes(nbytes)]


@pytest.mark.parametrize(("place", "nbytes"), [(0, 15), (0, 17), (1, 16)], ids=["cut off", "too long", "no outputs"])
async def test_a_query_whose_answer_is_malformed_is_tried_once_more_and_then_given_up(tmp_path, place, nbytes):
    asking, core = Asking(), ScriptedCore(lambda message: answered(message, place, nbytes))
    server = await core.listen(tmp_path / "core")
    link = asking.front.core = CoreLink(
        Endpoint(f"unix:{tmp_path / 'core'}"), Hello("front", "front"), asking.front, configure=print
    )
    link.start()
    asking.ask("q")
    await until(lambda: "q" in asking.outcomes, "the query is answered")
    assert isinstance(asking.outcomes["q"], Unavailable) and core.asked == 2
    assert asking.front.accounts.queries == 0
    await link.close()
    server.close()


async def test_a_connection_to_a_core_that_is_not_made_in_time_is_begun_anew(tmp_path, monkeypatch):
    """Systems repeat a connection's first packet ever more rarely, up to a minute apart."""
    monkeypatch.setattr(core_link, "CONNECT_S", 0.2)
    identity = member(Authority.make(), tmp_path / "here.pem", "gateway", "here", NOW)
    # A full queue of connections drops first packets, as a divided network does.
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(bound.getsockname())

        def under_way() -> set[int]:
            """The ports of connections of which no packet has been answered."""
            found = psutil.Process().net_connections("tcp4")
            return {one.laddr.port for one in found if one.status == "SYN_SENT" and one.raddr == bound.getsockname()}

        others = under_way()
        assert others, "the queue is full"
        endpoint = Endpoint(f"tls:127.0.0.1:{bound.getsockname()[1]}", PeerIdentity("gateway", "there", "0" * 64))
        client = TlsClient(identity.client_context, QueryLimits(1 << 20, 1 << 20).asking)
        link = CoreLink(endpoint, Hello("front", "here"), Asking().front, client=client)
        link.start()
        seen: set[int] = set()
        await until(lambda: seen.update(under_way() - others) or len(seen) > 1, "the front tries again")
        await link.close()


class Nobody:
    pass


async def test_an_address_that_no_connection_can_have_does_not_end_the_tries(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(core_link, "LOG_EVERY", 2)
    identity = member(Authority.make(), tmp_path / "here.pem", "gateway", "here", NOW)
    endpoint = Endpoint("tls:127.0.0.1:99999", PeerIdentity("node", "there", "0" * 64))
    client = TlsClient(identity.client_context, QueryLimits(1 << 20, 1 << 20).asking)
    link = CoreLink(endpoint, Hello("front", "here"), Asking().front, client=client)
    link.start()
    executors = SimpleNamespace(name="here", client=client, leads=False, stands_by=False)
    executor = ExecutorConnection("d0", endpoint, executors, Nobody())

    def tries(event: str) -> int:
        return sum(event in record.getMessage() for record in caplog.records)

    for event in ("core_unreachable", "executor_unreachable"):
        await until(lambda event=event: tries(event) > 1, f"{event} again")
    assert "port must be 0-65535" in caplog.text
    await link.close()
    await executor.close()


async def ends_of(message: SubmitQueries, path: Path) -> HoldingCore:
    core, ended = HoldingCore(), []
    fronts = Fronts(core, CoreStatus)
    await fronts.listen(path)
    connection = await connect(
        f"unix:{path}", lambda: FrameConnection(FromCore, lambda *_: None, lambda _, error: ended.append(error))
    )
    connection.send(Hello("front", "front"))
    for _ in range(2):
        connection.send(message, [bytes(16)])
    await until(lambda: ended, "the front is cut off")
    await fronts.close()
    return core


def asked(shape: RequestShape = ROW, age_s: float = 0.0, latency_s: float | None = None) -> SubmitQueries:
    return SubmitQueries("numbers", (shape,), ((1, 0, age_s, latency_s, None, None, "k"),))


@pytest.mark.parametrize(
    "message",
    [
        asked(age_s=float("nan")),
        asked(age_s=float("inf")),
        asked(latency_s=float("nan")),
        asked(RequestShape(0, (TensorHeader("x", "FP32", (0, 4), 16),))),
        asked(RequestShape(2, (X, TensorHeader("x", "FP32", (1, 4), -16), X))),
    ],
    ids=["age NaN", "age infinite", "time NaN", "no row", "negative size"],
)
async def test_a_front_that_sends_what_no_client_can_have_asked_is_cut_off(tmp_path, message):
    assert not (await ends_of(message, tmp_path / "core")).submitted


async def test_a_front_cannot_use_a_number_again_that_waits_for_its_answer(tmp_path):
    core = await ends_of(asked(latency_s=1e300), tmp_path / "core")
    # It was withdrawn with the connection.
    assert not core.held and core.submitted == 1
