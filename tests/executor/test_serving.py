"""Queries to a real executor process."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import onnxruntime as ort

from tests.executor.harness import Executor, application, resident, rows, variant
from workers.protocol.control import Overload
from workers.protocol.frames import Hello, MetricsRequest, Moved, Refusal, Results, StatsReport, Withdraw
from workers.protocol.framing import PREFIX, VERSION


async def test_a_query_larger_than_the_largest_batch_is_answered_in_one_piece(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path), max_batch=4)], [application()], [path])
    arrays = rows(11)
    result, outputs = await gateway.query(arrays, max_rows=4)
    assert result.batch_rows == 11
    expected = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, arrays)[0]
    np.testing.assert_allclose(outputs["y"], expected, rtol=1e-4, atol=1e-5)


async def test_hopeless_queries_are_shed_or_served_as_the_application_says(executor, tiny_models):
    path = tiny_models["quick"]
    specs = [application(), application("patient", late="serve")]
    residents = [resident(variant(1, path), 50.0), resident(variant(2, path, "patient"), 0.05)]
    gateway = await executor.applied(1, residents, specs, [path])
    refusal, _ = await gateway.query(rows(1), budget_s=20.0)
    assert (refusal.code, refusal.retryable) == ("late", True)
    refusal, _ = await gateway.query(rows(1), budget_s=-0.1)
    assert (refusal.code, refusal.retryable) == ("late", False)
    result, _ = await gateway.query(rows(1), variant=2, application="patient", budget_s=0.001)
    assert isinstance(result, Results)


async def test_a_peer_that_breaks_the_protocol_loses_only_its_own_connection(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    silent, garbage, stranger, posing, single = [await executor.peer("") for _ in range(5)]
    silent.connection.send(Moved(1))
    garbage.connection.transport.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    stranger.connection.send(Hello("browser", "x"))
    posing.connection.send(Hello("gateway", "x"))
    posing.connection.send(MetricsRequest())
    single.connection.send(Hello("gateway", "x"))
    # A query outside a batch, as older gateways sent it.
    header = msgspec.msgpack.encode(["Submit", 1, "app", 1.0, 1, [["x", "FP32", [1, 4], 16]]])
    single.connection.transport.write(PREFIX.pack(b"NR", VERSION, 0, len(header), 16) + header + bytes(16))
    for peer in (silent, garbage, stranger, posing, single):
        await asyncio.wait_for(peer.closed.wait(), 60)
    assert isinstance((await gateway.query(rows(1)))[0], Results)


async def test_a_query_that_is_cancelled_while_it_runs_is_answered_as_ever(executor, tiny_models):
    path = tiny_models["heavy"]
    gateway = await executor.applied(1, [resident(variant(1, path), 0.02)], [application()], [path])
    gateway.grant({id: rows(1, seed=id) for id in range(16)})
    for id in range(4):
        gateway.connection.send(Withdraw(id))
    for id in range(16):
        assert isinstance((await gateway.answer(id))[0], Results)


async def test_overload_is_refused_retryably_and_reported(tmp_path, tiny_models):
    path = tiny_models["heavy"]
    async with Executor(tmp_path, queue_rows="8") as executor:
        gateway = await executor.applied(1, [resident(variant(1, path), 0.02, max_batch=4)], [application()], [path])
        ids = [gateway.dispatch(rows(1, seed=i)) for i in range(100)]
        answers = [(await gateway.answer(id))[0] for id in ids]
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        assert refused and {(r.code, r.retryable) for r in refused} == {("overloaded", True)}
        assert len(answers) - len(refused) >= 8
        # A report is of one second; on a busy machine the queries may arrive over more.
        report = await executor.node.next(Overload)
        assert report.application == "app" and 0 < report.refused <= len(refused)
        assert report.refused <= report.arrived <= len(ids)
        # Queries that were not refused are answered.
        assert report.arrived - report.refused <= len(answers) - len(refused)


async def test_statistics_and_metrics_are_reported(executor, tiny_models, tmp_path):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(3, path), 0.05)], [application()], [path])
    gateway.connection.send(Moved(1))
    await gateway.query(rows(2), variant=3)
    stats = (await executor.node.next(StatsReport, lambda m: m.stats.variants)).stats
    assert (stats.variants[0].variant, stats.variants[0].rows, stats.plan_version) == (3, 2, 1)
    assert stats.busy > 0 and stats.memory_bytes > 2**20
    text = await executor.metrics()
    line = 'nereus_executor_queries_total{application="app",device="box/cpu0",outcome="ok",variant="v3"} 1.0'
    assert line in text
    assert 'nereus_executor_warm_variants{device="box/cpu0",role="planned"} 1.0' in text
    # Each scrape is a connection of its own, and would fill the log.
    await executor.terminate()
    joined = [line for line in (tmp_path / "log").read_text().splitlines() if "peer_joined" in line]
    assert len(joined) >= 2 and not [line for line in joined if "metrics" in line]
