"""The open-loop client counts strictly, from the moment a query was due."""

from __future__ import annotations

import pytest

from benchmarks.openloop import PROBES, Client
from scheduler.simulation.arrivals import Arrivals
from tests.demo.serving import V2Server, application


def every(seconds: float, count: int) -> Arrivals:
    return Arrivals(("shapes",), tuple(seconds * i for i in range(count)), (0,) * count)


async def test_every_query_is_counted_once_by_what_became_of_it(tmp_path):
    told = [(200, 0.0), (200, 3.0), (504, 0.0), (400, 0.0), (0, 0.0), (200, 0.0)]
    async with V2Server(lambda n: told[n]) as server:
        client = Client(server.url, "key", [application(tmp_path, slo_ms=2000.0)])
        await client.replay(every(0.02, len(told)))
    counts = client.counts
    assert (counts.sent, counts.in_time, counts.late, counts.refused, counts.failed, counts.unsent) == (
        6,
        2,
        1,
        1,
        2,
        0,
    )
    assert counts.accuracy_sum == 2 * 90.0
    assert client.answers == [("shapes", "large", 1)] * 3


async def test_queries_leave_when_they_are_due_though_none_was_answered(tmp_path):
    async with V2Server(lambda n: (200, 1.0)) as server:
        client = Client(server.url, "key", [application(tmp_path, slo_ms=300.0)])
        await client.replay(every(0.01, 20))
        assert server.answered[200] == 20
    # One after the other they would have taken twenty seconds, and run out of patience.
    assert (client.counts.late, client.counts.failed) == (20, 0)


async def test_a_probe_leaves_out_what_was_refused(tmp_path):
    async with V2Server(lambda n: (404 if n % 2 else 200, 0.0)) as server:
        client = Client(server.url, "key", [application(tmp_path)])
        taken = await client.probe({"shapes": "large"})
        assert server.queries == PROBES
    assert len(taken) == PROBES // 2 and min(taken) > 0


async def test_a_probe_without_any_answer_is_an_error(tmp_path):
    async with V2Server(lambda n: (404, 0.0)) as server:
        client = Client(server.url, "key", [application(tmp_path)])
        with pytest.raises(RuntimeError, match="not one query was answered"):
            await client.probe({"shapes": "large"})
