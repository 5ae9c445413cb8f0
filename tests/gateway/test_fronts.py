"""Reports of fronts to their core, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import msgspec

from tools.waiting import eventually_async
from workers.gateway.catalog import Catalog
from workers.gateway.core_link import CoreLink
from workers.gateway.errors import Unavailable
from workers.gateway.gateway import Gateway
from workers.gateway.remote_front import Fronts, RemoteFront
from workers.protocol.frames import Hello, RequestShape
from workers.protocol.gateways import ApplicationTotals, CoreStatus, FrontStats, FrontTotals, SubmitQueries
from workers.protocol.specs import ApplicationStats, PlanSpec
from workers.trust.endpoints import Endpoint
from workers.v2.query import MOST

from .conftest import application, config, gateway_options, new_front, row_query


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
    front = new_front()
    link = front.core = CoreLink(Endpoint(f"unix:{tmp_path / 'core'}"), Hello("front", "front"), front, configure=print)
    link.start()
    spec = application("numbers", 60.0)
    bodies, ended = weakref.WeakSet(), []

    def ask(number: int) -> None:
        body = memoryview(bytes(16))
        bodies.add(body)
        query = row_query(str(number), 0.001, body)
        front.submit(spec, query, None, time.monotonic(), lambda flight, outcome: ended.append(type(outcome)))

    for number in range(50):
        ask(number)
        await asyncio.sleep(0)
    link.tick(time.monotonic() + 60)
    assert ended == [Unavailable] * 50
    gc.collect()
    assert not bodies
    await link.close()


async def two(folder) -> list[Gateway]:
    gateways, shared = [], {"NEREUS_GATEWAYS": "2"}
    for number in (1, 2):
        options = gateway_options(folder, number, **shared)
        if number == 1:
            options.file.parent.mkdir()
            options.file.write_bytes(msgspec.json.encode(config(PlanSpec(1), [])))
            settings = options.settings
            shared |= {"NEREUS_HTTP": str(settings.http), "NEREUS_GRPC": str(settings.grpc)}
        gateways.append(Gateway(options))
        await gateways[-1].start()
    return gateways


async def test_the_first_gateway_decides_for_others_until_they_have_stopped(tmp_path):
    first, second = await two(tmp_path)
    stops = asyncio.create_task(first.stop(10_000))
    await asyncio.sleep(0.5)
    assert not stops.done()
    await second.stop(0.1)
    async with asyncio.timeout(300):
        await stops


async def test_the_first_gateway_waits_no_longer_than_its_grace_for_others_that_go_on(tmp_path):
    first, second = await two(tmp_path)
    async with asyncio.timeout(300):
        await first.stop(0.2)
    await second.stop(0.1)


async def test_each_front_knows_the_totals_of_all_others(tmp_path):
    """Also of those that have ended; one that connects again is counted once."""
    fronts, path = core(), tmp_path / "core"
    await fronts.listen(path)
    links = [CoreLink(Endpoint(f"unix:{path}"), Hello("front", name), front=None) for name in ("two", "three")]
    owns = [
        FrontTotals(
            {"a": ApplicationTotals(in_time=10**n, success_s=0.5, last_success_unix=100.0 + n)}, {"k": 10**n}, n
        )
        for n in range(3)
    ]
    for link in links:
        link.start()

    def known() -> list[tuple[int, int]]:
        for sharing, own in zip((fronts, *links), owns, strict=True):
            sharing.share(own)
        elsewhere = [sharing.elsewhere for sharing in (fronts, *links)]
        return [(one.applications["a"].in_time, one.keys["k"]) if one.applications else (0, 0) for one in elsewhere]

    await eventually_async(lambda: known() == [(110, 110), (101, 101), (11, 11)])
    total = fronts.elsewhere.applications["a"]
    assert (total.success_s, total.last_success_unix) == (1.0, 102.0)
    await links.pop().close()
    await eventually_async(lambda: len(fronts.local) == 1)
    links.append(CoreLink(Endpoint(f"unix:{path}"), Hello("front", "three"), front=None))
    links[1].start()
    await eventually_async(lambda: len(fronts.local) == 2 and known() == [(110, 110), (101, 101), (11, 11)])
    owns.pop()
    await links.pop().close()
    await eventually_async(lambda: len(fronts.local) == 1)
    owns[1] = FrontTotals({"a": ApplicationTotals(in_time=20), "b": ApplicationTotals(failed=1)}, {"k": 20}, 1)
    await eventually_async(lambda: known() == [(120, 120), (101, 101)])
    assert fronts.elsewhere.applications["b"].failed == 1
    await links[0].close()
    await fronts.close()
