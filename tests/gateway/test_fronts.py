"""Reports of fronts to their core, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from types import SimpleNamespace

import msgspec

from tools.waiting import eventually_async
from workers.gateway import core_sides
from workers.gateway.accounts import Accounts, Limits
from workers.gateway.catalog import Catalog
from workers.gateway.core_link import CoreLink
from workers.gateway.errors import Unavailable
from workers.gateway.front import Front
from workers.gateway.gateway import Gateway
from workers.gateway.metrics import GatewayMetrics
from workers.gateway.options import GatewayOptions, LocalGateways
from workers.gateway.remote_front import Fronts, RemoteFront
from workers.protocol.frames import Hello, RequestShape, TensorHeader
from workers.protocol.fronts import FrontStats, SubmitQueries
from workers.protocol.gateways import CoreStatus
from workers.protocol.specs import ApplicationStats, PlanSpec
from workers.trust.endpoints import Endpoint
from workers.v2.query import MOST, Terms, V2Query

from .conftest import application, config, free_port


class CoreStub:
    catalog = None


def seconds(*arrived: int) -> list[FrontStats]:
    return [FrontStats({"a": ApplicationStats(arrived=count)}) for count in arrived]


async def taken(fronts: Fronts, count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        found.extend(one["a"].arrived for one in fronts.take_stats())
        return len(found) >= count

    await eventually_async(enough)
    return found


def core() -> Fronts:
    return Fronts(CoreStub(), CoreStatus)


async def test_every_second_of_a_front_reaches_the_core_once(tmp_path):
    path = tmp_path / "core"
    link = CoreLink(Endpoint(f"unix:{path}"), Hello("front", "front"), front=None, configure=print)
    link.start()
    for second in seconds(1, 2):
        link.report(second)
    fronts = core()
    await fronts.listen(path)
    assert await taken(fronts, 2) == [1, 2]
    for second in seconds(3, 4):
        link.report(second)
    await link.close()
    assert await taken(fronts, 2) == [3, 4]
    await fronts.close()


def test_terms_that_never_repeat_do_not_pile_up():
    class NoApplications:
        catalog = Catalog()

    class NoConnection:
        def send(self, message, body=()):
            pass

    front = RemoteFront(NoConnection(), NoApplications())
    for number in range(2 * MOST):
        query = (number, 0, 0.0, None, None, number / MOST, "client")
        front.submit(SubmitQueries("numbers", (RequestShape(1, ()),), (query,)), memoryview(b""))
    assert len(front._terms) <= MOST


async def test_queries_that_end_while_the_core_is_away_leave_nothing_behind(tmp_path):
    metrics = GatewayMetrics()
    front = Front(Accounts(metrics, Limits(100, 100, 1 << 20, 8)))
    link = front.core = CoreLink(Endpoint(f"unix:{tmp_path / 'core'}"), Hello("front", "front"), front, configure=print)
    link.start()
    spec = application("numbers", 60.0)
    bodies, ended = weakref.WeakSet(), []

    def ask(number: int) -> None:
        body = memoryview(bytes(16))
        bodies.add(body)
        terms = Terms(RequestShape(1, (TensorHeader("x", "FP32", (1, 4), 16),)), 1, (("y", True),), 16, 0.001)
        query = V2Query(str(number), terms, (body,), 0.001)
        front.submit(spec, query, None, time.monotonic(), lambda flight, outcome: ended.append(type(outcome)))

    for number in range(50):
        ask(number)
        await asyncio.sleep(0)
    link.sweep(time.monotonic() + 60)
    assert ended == [Unavailable] * 50
    gc.collect()
    assert not bodies
    await link.close()


async def two(folder) -> list[Gateway]:
    """Both of a box's gateways, in this process."""
    file, ports = folder / "config.json", (free_port(), free_port())
    file.write_bytes(msgspec.json.encode(config(PlanSpec(1), [])))
    totals, gateways = (folder / "1", folder / "2"), []
    for own in range(2):
        local = LocalGateways(folder / "core", totals, own)
        options = GatewayOptions(
            f"g{own}", "127.0.0.1", ports[0], "127.0.0.1", ports[1], file, member="g0", local_gateways=local
        )
        gateways.append(Gateway(options))
        await gateways[-1].start()
    return gateways


async def test_the_first_gateway_does_not_wait_at_its_end_for_others_that_go_on(tmp_path):
    first, second = await two(tmp_path)
    async with asyncio.timeout(300):
        await first.stop(10_000)
    await second.stop(0.1)


async def test_the_first_gateway_decides_for_others_that_stop_until_they_have(tmp_path):
    first, second = await two(tmp_path)
    await second._side.drain(0.0)
    await eventually_async(lambda: first._side._fronts.leaving)
    stops = asyncio.create_task(first.stop(10_000))
    await asyncio.sleep(0.5)
    assert not stops.done()
    await second.stop(0.1)
    async with asyncio.timeout(300):
        await stops


async def test_the_first_gateway_waits_for_queries_of_one_that_could_not_say_yet_that_it_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(core_sides, "NOTICE_S", 0.05)
    first, second = await two(tmp_path)
    await eventually_async(lambda: first._side._fronts._fronts)
    (front,) = first._side._fronts._fronts.values()
    asked, later = SimpleNamespace(answer=print), SimpleNamespace(answer=print)
    front._flights[1] = asked
    drain = asyncio.create_task(first._side.drain(10_000))
    await asyncio.sleep(0.5)
    assert not drain.done()
    front._flights[2] = later
    asked.answer = None
    async with asyncio.timeout(300):
        await drain
    front._flights.clear()
    await first.stop(0.1)
    await second.stop(0.1)


async def test_a_core_that_was_away_learns_that_a_front_stops(tmp_path):
    path = tmp_path / "core"
    link = CoreLink(Endpoint(f"unix:{path}"), Hello("front", "front"), front=None, configure=print)
    link.start()
    link.leave()
    fronts = core()
    await fronts.listen(path)
    await eventually_async(lambda: fronts.all_leaving)
    await link.close()
    await fronts.close()
