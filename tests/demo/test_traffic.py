"""The load keeps exact accounts of what came of each query, against a real server that misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from appliance.demo.rates import LoadCapacity, RateProfile
from appliance.demo.traffic import CONNECTIONS, IN_FLIGHT, Counts, QueryStream, Traffic, latencies, summary, wait_ready
from tests.demo.serving import V2Server, application
from tools.waiting import eventually_async

pytestmark = pytest.mark.wide


@pytest.fixture
def shapes(tmp_path):
    return application(tmp_path, slo_ms=3000)


def stream(shapes, qps: float = 100.0) -> QueryStream:
    return QueryStream(shapes, RateProfile(LoadCapacity(qps / 0.68, qps * 5), phase=0.2), seed=1)


def traffic(server: V2Server, shapes, qps: float = 100.0, **given) -> Traffic:
    return Traffic(server.url, "secret", [stream(shapes, qps)], **given)


def taken(sent: Traffic) -> Counts:
    return sent.count(sent.take()["shapes"])


async def drive(
    server: V2Server, shapes, seconds: float = 1.5, qps: float = 100.0, most: int = IN_FLIGHT, patience_s=20.0
) -> Counts:
    sent = traffic(server, shapes, qps, most=most, patience_s=patience_s)
    await sent.run(seconds)
    await sent.close()
    return taken(sent)


async def test_every_answer_in_time_is_counted_with_its_variant_and_accuracy(shapes):
    async with V2Server() as server:
        found = summary(counts := await drive(server, shapes))
    assert counts["sent"] == server.queries == counts["in_time"] > 50
    assert found["variants"] == {"large": counts["in_time"]}
    assert found["violation_ratio"] == 0
    assert found["effective_accuracy"] == 90.0
    assert server.keys == {"Bearer secret"}


async def test_refusals_late_answers_and_failures_are_distinguished(shapes):
    statuses = {0: (503, 0.0), 1: (200, 3.3), 2: (500, 0.0), 3: (504, 0.0), 4: (401, 0.0)}
    async with V2Server(lambda n: statuses.get(n % 10, (200, 0.0))) as server:
        counts = await drive(server, shapes)
    assert counts["sent"] == server.queries
    shares = [sum(n % 10 == kind for n in range(server.queries)) for kind in range(10)]
    assert counts["refused"] == shares[0] + shares[3]
    assert counts["late"] == shares[1]
    assert counts["failed"] == shares[2] + shares[4]
    assert counts["in_time"] == sum(shares[5:])
    assert counts["abandoned"] == 0


async def test_a_query_never_answered_is_a_failure(shapes):
    async with V2Server(lambda n: (200, 0.0) if n else (200, 600.0)) as server:
        counts = await drive(server, shapes, seconds=0.5, patience_s=3.0)
    assert counts["failed"] == 1
    assert counts["in_time"] == counts["sent"] - 1


async def test_sending_does_not_wait_for_answers_and_the_excess_is_counted(shapes):
    async with V2Server(lambda n: (200, 3.3)) as server:
        counts = await drive(server, shapes, seconds=0.8, qps=200, most=20)
    assert counts["sent"] == server.queries == counts["late"] == 20
    assert counts["unsent"] > 50
    assert summary(counts)["violation_ratio"] == 1.0


async def test_queries_take_turns_on_a_few_connections(shapes):
    async with V2Server() as server:
        counts = await drive(server, shapes)
    # Several, which several gateways share out among themselves; more only while all of them are busy.
    assert CONNECTIONS <= len(server.peers) < counts["sent"] / 2


async def counted(sent: Traffic, what: str) -> None:
    await eventually_async(lambda: taken(sent)[what])


async def test_the_load_survives_a_server_that_restarts(shapes):
    first = V2Server()
    await first.__aenter__()
    sent = traffic(first, shapes, patience_s=5.0)
    running = asyncio.create_task(sent.run())
    await counted(sent, "in_time")
    await first.__aexit__()
    await counted(sent, "failed")
    # Queries that were under way lose theirs first.
    await eventually_async(lambda: "no connection" in sent.last_error())
    async with V2Server(port=first.port) as second, asyncio.timeout(60):
        # Answers of the first server may still be counted.
        await eventually_async(lambda: second.queries)
        await counted(sent, "in_time")
        running.cancel()
        await sent.close()


async def test_stopping_is_immediate_and_owns_up_to_what_was_in_flight(shapes):
    async with V2Server(lambda n: (200, 600.0)) as server:
        sent = traffic(server, shapes, patience_s=600)
        running = asyncio.create_task(sent.run())
        await eventually_async(lambda: server.queries >= 5)
        running.cancel()
        # It waits neither for their answers nor for its own patience.
        await asyncio.wait_for(sent.close(), 60)
    counts = taken(sent)
    assert counts["abandoned"] == counts["sent"] >= 5
    assert summary(counts)["violation_ratio"] is None


async def test_waiting_outlasts_a_gateway_that_is_not_there_or_not_ready_yet(shapes, unused_tcp_port):
    url = f"http://127.0.0.1:{unused_tcp_port}"
    waiting = asyncio.create_task(asyncio.to_thread(wait_ready, url))
    await asyncio.sleep(0.2)
    server = V2Server(port=unused_tcp_port)
    server.ready = False
    async with server:
        await eventually_async(lambda: server.polls >= 2)
        assert not waiting.done()
        server.ready = True
        await asyncio.wait_for(waiting, 60)


async def test_latency_counts_from_the_due_time(tmp_path):
    """A load that was held up itself must not call the queries it sent late punctual."""
    shapes = application(tmp_path, slo_ms=300)
    async with V2Server() as server:
        sent = traffic(server, shapes, patience_s=5)
        running = asyncio.create_task(sent.run(1.2))
        await asyncio.sleep(0.3)
        time.sleep(0.7)
        await running
        await sent.close()
    records = sent.take()["shapes"]
    assert sent.count(records)["late"] > 10
    assert latencies(records)["lag_p99_ms"] > 300


async def test_a_key_is_used_from_the_moment_it_is_given(shapes):
    async with V2Server() as server:
        sent = traffic(server, shapes)
        running = asyncio.create_task(sent.run())
        await counted(sent, "in_time")
        sent.use("rotated")
        await eventually_async(lambda: server.keys == {"Bearer secret", "Bearer rotated"})
        running.cancel()
        await sent.close()


def test_counts_add_up():
    one = Counter({"sent": 2, "in_time": 1, "late": 1, "accuracy": 90, "variant a": 1})
    other = Counter(
        {"sent": 3, "in_time": 1, "refused": 1, "failed": 1, "accuracy": 80, "variant a": 1, "variant b": 2}
    )
    found = summary(one + other)
    assert found["sent"] == 5 and found["variants"] == {"a": 2, "b": 2}
    assert found["effective_accuracy"] == 85.0 and found["violation_ratio"] == 0.6
    assert summary(Counter())["effective_accuracy"] is None
