"""The load keeps exact accounts of what came of each query.

It runs against a real server that misbehaves on request.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from grpc import StatusCode as Code

from appliance.demo.counts import QueryCounts
from appliance.demo.drive import CONNECTIONS, Clients, Driver, QueryStream, until_ready
from appliance.demo.rates import LoadCapacity, RateProfile
from appliance.demo.replay import replay_async
from tests.demo.serving import V2Server, application

pytestmark = pytest.mark.wide


@pytest.fixture
def shapes(tmp_path):
    """With an SLO that a busy machine cannot break by itself."""
    return application(tmp_path, slo_ms=8000)


def stream(shapes, qps: float = 100.0) -> QueryStream:
    """About ``qps``, with no burst in the first seconds."""
    return QueryStream(shapes, RateProfile(LoadCapacity(qps / 0.68, qps * 5), phase=0.2), seed=1)


async def drive(server: V2Server, shapes, seconds: float = 1.5, qps: float = 100.0, limit: int = 256, patience=20.0):
    async with Clients(server.address, limit=limit, timeout_s=patience) as clients:
        driver = Driver(clients, [stream(shapes, qps)], "secret")
        await driver.run(seconds, grace_s=patience + 2)
        return driver.take()["shapes"]


async def test_every_answer_in_time_is_counted_with_its_variant_and_accuracy(shapes):
    async with V2Server() as server:
        counts = await drive(server, shapes)
    assert counts.sent == server.queries == counts.in_time > 50
    assert counts.variants == {"large": counts.in_time}
    summary = counts.summary()
    assert summary["violation_ratio"] == 0
    assert summary["effective_accuracy"] == 90.0
    assert summary["observed_accuracy"] == 100.0
    assert server.keys == {"Bearer secret"}


async def test_refusals_late_answers_and_failures_are_distinguished(shapes):
    statuses = {
        0: (Code.RESOURCE_EXHAUSTED, 0.0),
        1: (Code.OK, 8.5),
        2: (Code.INTERNAL, 0.0),
        3: (Code.DEADLINE_EXCEEDED, 0.0),
        4: (Code.UNAVAILABLE, 0.0),
    }
    async with V2Server(lambda n: statuses.get(n % 10, (Code.OK, 0.0))) as server:
        counts = await drive(server, shapes)
    assert counts.sent == server.queries
    shares = [sum(n % 10 == kind for n in range(server.queries)) for kind in range(10)]
    assert counts.refused == shares[0] + shares[3]
    assert counts.late == shares[1]
    assert counts.failed == shares[2] + shares[4]
    assert counts.in_time == sum(shares[5:])
    assert counts.violations == sum(shares[:5])
    assert counts.abandoned == 0 and counts.decided == counts.sent


async def test_a_query_never_answered_is_a_failure(shapes):
    async with V2Server(lambda n: (Code.OK, 0.0) if n else (Code.OK, 600.0)) as server:
        counts = await drive(server, shapes, seconds=0.5, patience=10.0)
    assert counts.failed == 1
    assert counts.in_time == counts.sent - 1


async def test_sending_does_not_wait_for_answers_and_the_excess_is_counted(shapes):
    async with V2Server(lambda n: (Code.OK, 8.5)) as server:
        counts = await drive(server, shapes, seconds=0.8, qps=200, limit=20)
    assert counts.sent == server.queries == counts.late == 20
    assert counts.unsent > 50
    assert counts.summary()["violation_ratio"] == 1.0


async def test_queries_take_turns_on_a_few_connections(shapes):
    async with V2Server() as server:
        counts = await drive(server, shapes)
    # Several, which several gateways share out among themselves, and no more however many queries.
    assert len(server.peers) == CONNECTIONS < counts.sent


async def counted(driver: Driver, what: str) -> None:
    """Wait until at least one more query ended like this."""
    async with asyncio.timeout(60):
        while not getattr(driver.take()["shapes"], what):
            await asyncio.sleep(0.05)


async def test_the_load_survives_a_server_that_restarts(shapes):
    first = V2Server()
    await first.__aenter__()
    async with Clients(first.address, timeout_s=5.0) as clients:
        driver = Driver(clients, [stream(shapes)], "secret")
        running = asyncio.create_task(driver.run(600))
        await counted(driver, "in_time")
        await first.__aexit__()
        await counted(driver, "failed")
        async with V2Server(port=first.port) as second, asyncio.timeout(60):
            # Answers of the first server may still be counted.
            while not second.queries:
                await asyncio.sleep(0.05)
            await counted(driver, "in_time")
            driver.stop()
            await running


async def test_stopping_is_immediate_and_owns_up_to_what_was_in_flight(shapes):
    async with V2Server(lambda n: (Code.OK, 600.0)) as server, Clients(server.address, timeout_s=600) as clients:
        driver = Driver(clients, [stream(shapes)], "secret")
        running = asyncio.create_task(driver.run())
        while server.queries < 5:
            await asyncio.sleep(0.02)
        driver.stop()
        # It waits neither for their answers nor for its own patience.
        await asyncio.wait_for(running, 60)
        counts = driver.take()["shapes"]
    assert counts.abandoned == counts.sent >= 5
    assert counts.decided == 0 and counts.summary()["violation_ratio"] is None


async def test_nothing_is_sent_before_the_gateway_is_ready(shapes):
    server = V2Server()
    server.ready = False
    async with server:
        replaying = asyncio.create_task(replay_async(server.address, "secret", 0.5, [stream(shapes)]))
        while server.polls < 2:
            await asyncio.sleep(0.05)
        assert server.queries == 0
        server.ready = True
        report = await replaying
    assert report["total"]["sent"] == report["shapes"]["sent"] == server.queries > 0
    assert report["total"]["violation_ratio"] == 0


async def test_waiting_outlasts_a_gateway_that_is_not_there_yet(unused_tcp_port):
    async with Clients(f"127.0.0.1:{unused_tcp_port}", timeout_s=1) as clients:
        waiting = asyncio.create_task(until_ready(clients, poll_s=0.05))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        async with V2Server(port=unused_tcp_port):
            await asyncio.wait_for(waiting, 60)


async def test_the_same_seed_sends_the_same_number_at_the_same_rate(shapes):
    sent = []
    for _ in range(2):
        async with V2Server() as server:
            sent.append((await drive(server, shapes, seconds=0.7)).sent)
    assert sent[0] == sent[1]


async def test_latency_counts_from_the_due_time(tmp_path):
    """A load that was held up itself must not call the queries it sent late punctual."""
    shapes = application(tmp_path, slo_ms=300)
    async with V2Server() as server, Clients(server.address) as clients:
        driver = Driver(clients, [stream(shapes)], "secret")
        running = asyncio.create_task(driver.run(1.2, grace_s=2))
        await asyncio.sleep(0.3)
        time.sleep(0.7)
        await running
    counts = driver.take()["shapes"]
    assert counts.late > 10
    assert max(counts.lags_ms) > 300


def test_counts_add_up():
    one = QueryCounts(sent=2, in_time=1, late=1, accuracy_sum=90, correct=1, variants={"a": 1}, latencies_ms=[1, 400])
    one.add(QueryCounts(sent=3, in_time=1, refused=1, failed=1, accuracy_sum=80, variants={"a": 1, "b": 2}))
    assert (one.sent, one.decided, one.violations) == (5, 5, 3)
    assert one.variants == {"a": 2, "b": 2}
    summary = one.summary()
    assert summary["effective_accuracy"] == 85.0 and summary["violation_ratio"] == 0.6
    assert summary["latency_p50_ms"] == 1 and summary["latency_p99_ms"] == 400
    assert QueryCounts().summary()["effective_accuracy"] is None
