"""Queries to a real executor process: answered once each, rightly, in time or refused clearly."""

from __future__ import annotations

import asyncio

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tests.executor.harness import Executor, application, resident, rows, save, variant
from workers.protocol.frames import (
    Cancel,
    ExecutorState,
    Hello,
    Metrics,
    MetricsRequest,
    Moved,
    OverloadReport,
    Refusal,
    Result,
    StatsReport,
    Submit,
)
from workers.protocol.specs import Signature, TensorSpec


@pytest.fixture
async def executor(tmp_path):
    async with Executor(tmp_path) as running:
        yield running


#: its queries wait until just before their deadline, unless their batch is full
DELAYED = application(policy="proteus", late="serve")


async def test_answers_equal_in_process_onnxruntime_and_batches_form(executor, tiny_models):
    path = tiny_models["medium"]
    gateway = await executor.applied(1, [resident(variant(7, path, accuracy=91.5))], [DELAYED], [path])
    inputs = [rows(1 + i % 3, seed=i) for i in range(24)]
    answers = await asyncio.gather(*(gateway.query(arrays, budget_s=1.5) for arrays in inputs))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for arrays, (result, outputs) in zip(inputs, answers, strict=True):
        assert isinstance(result, Result)
        assert (result.variant, result.accuracy) == ("v7", 91.5)
        np.testing.assert_allclose(outputs["y"], session.run(None, arrays)[0], rtol=1e-4, atol=1e-5)
    assert max(result.batch_rows for result, _ in answers) > 3
    assert all(result.batch_rows <= 16 for result, _ in answers)


async def test_a_query_larger_than_the_largest_batch_is_answered_in_one_piece(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path), max_batch=4)], [application()], [path])
    arrays = rows(11)
    result, outputs = await gateway.query(arrays)
    assert result.batch_rows == 11
    expected = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, arrays)[0]
    np.testing.assert_allclose(outputs["y"], expected, rtol=1e-4, atol=1e-5)


async def test_text_goes_through_a_string_model(executor, tmp_path):
    path = save(
        tmp_path / "text.onnx",
        [helper.make_node("Identity", ["s"], ["t"])],
        [helper.make_tensor_value_info("s", TensorProto.STRING, ["b", 2])],
        [helper.make_tensor_value_info("t", TensorProto.STRING, ["b", 2])],
    )
    spec = application(signature=Signature((TensorSpec("s", "BYTES", (-1, 2)),), (TensorSpec("t", "BYTES", (-1, 2)),)))
    gateway = await executor.applied(1, [resident(variant(1, path))], [spec], [path])
    words = np.array([["grün", ""], ["b", "日本"]], dtype=object)
    _, outputs = await gateway.query({"s": words})
    expected = b"".join(len(w.encode()).to_bytes(4, "little") + w.encode() for w in words.ravel())
    assert outputs["t"] == expected


async def test_only_the_wanted_outputs_come_back(executor, tmp_path):
    value = helper.make_tensor_value_info
    path = save(
        tmp_path / "two.onnx",
        [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Abs", ["x"], ["a"])],
        [value("x", TensorProto.FLOAT, ["b", 4])],
        [value("n", TensorProto.FLOAT, ["b", 4]), value("a", TensorProto.FLOAT, ["b", 4])],
    )
    both = (TensorSpec("n", "FP32", (-1, 4)), TensorSpec("a", "FP32", (-1, 4)))
    spec = application(signature=Signature((TensorSpec("x", "FP32", (-1, 4)),), both))
    gateway = await executor.applied(1, [resident(variant(1, path))], [spec], [path])
    arrays = rows(2)
    _, outputs = await gateway.query(arrays, outputs=("a",))
    assert list(outputs) == ["a"]
    np.testing.assert_array_equal(outputs["a"], np.abs(arrays["x"]))


async def test_wrong_queries_are_refused_by_field(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    good = rows(2)["x"]
    wrong = {
        "x: datatype must be FP32, not FP64": {"arrays": {"x": good.astype(np.float64)}},
        "x: shape must be [-1, 4], not [2, 3]": {"arrays": {"x": good[:, :3]}},
        "x: shape must be [-1, 4], not [8]": {"arrays": {"x": good.reshape(-1)}},
        "inputs: 'x' is missing": {"arrays": {}, "rows": 2},
        "inputs: 'z' is not an input of app": {"arrays": {"x": good, "z": good}},
        "x: must have the query's 3 rows, its shape is [2, 4]": {"arrays": {"x": good}, "rows": 3},
        "rows: must be from 1 to 1000000, not 0": {"arrays": {"x": good[:0]}},
        "outputs: 'q' is not an output of app": {"arrays": {"x": good}, "outputs": ("q",)},
    }
    for message, given in wrong.items():
        refusal, _ = await gateway.query(**given)
        assert (refusal.code, refusal.message, refusal.retryable) == ("invalid", message, False)
    header = gateway.submit({"x": good})
    await gateway.answer(header)
    gateway.connection.send(Submit(9000, "app", 1.0, 2, ()), [b"12345"])
    refusal, _ = await gateway.answer(9000)
    assert refusal.message == "inputs: body has 5 bytes, its tensors 0"
    assert isinstance((await gateway.query({"x": good}))[0], Result)


async def test_what_is_not_here_is_refused_retryably(executor, tiny_models):
    path = tiny_models["quick"]
    empty = await executor.peer()
    refusal, _ = await empty.query(rows(1))
    assert (refusal.code, refusal.retryable) == ("not_resident", True)
    gateway = await executor.applied(1, [resident(variant(1, path, accuracy=80.0))], [application()], [path])
    for given in ({"application": "other"}, {"variant": "v2"}, {"min_accuracy": 80.5}):
        refusal, _ = await gateway.query(rows(1), **given)
        assert (refusal.code, refusal.retryable) == ("not_resident", True)
    for given in ({"variant": "v1"}, {"min_accuracy": 80.0}):
        assert isinstance((await gateway.query(rows(1), **given))[0], Result)


async def test_hopeless_queries_are_shed_or_served_as_the_application_says(executor, tiny_models):
    path = tiny_models["quick"]
    specs = [application(), application("patient", late="serve")]
    residents = [resident(variant(1, path), 0.05), resident(variant(2, path, "patient"), 0.05)]
    gateway = await executor.applied(1, residents, specs, [path])
    refusal, _ = await gateway.query(rows(1), budget_s=0.02)
    assert (refusal.code, refusal.retryable) == ("late", True)
    refusal, _ = await gateway.query(rows(1), budget_s=-0.1)
    assert (refusal.code, refusal.retryable) == ("late", False)
    result, _ = await gateway.query(rows(1), application="patient", budget_s=0.001)
    assert isinstance(result, Result)


async def test_a_cancelled_query_is_forgotten_in_the_queue_and_harmless_in_a_batch(executor, tiny_models):
    path = tiny_models["heavy"]
    # The profile makes the policy wait for more rows, so that the first query is surely still in the queue.
    gateway = await executor.applied(1, [resident(variant(1, path), 0.01)], [DELAYED], [path])
    cancelled = gateway.submit(rows(1), budget_s=60.0)
    gateway.connection.send(Cancel(cancelled))
    kept = gateway.submit(rows(1, seed=1), budget_s=1.0)
    result, _ = await gateway.answer(kept)
    assert result.batch_rows == 1
    # A full batch starts at once; its members are cancelled while it runs.
    ids = [gateway.submit(rows(1, seed=i), budget_s=1.0) for i in range(16)]
    for id in ids[:4]:
        gateway.connection.send(Cancel(id))
    for id in ids[4:]:
        assert isinstance((await gateway.answer(id))[0], Result)
    assert isinstance((await gateway.query(rows(1), budget_s=0.1))[0], Result)
    assert cancelled not in gateway.answers


async def test_a_gateway_that_goes_away_in_mid_batch_disturbs_nobody(executor, tiny_models):
    path = tiny_models["heavy"]
    staying = await executor.applied(1, [resident(variant(1, path), 0.004)], [application()], [path])
    leaving = await executor.peer()
    for i in range(8):
        leaving.submit(rows(1, seed=i))
    ids = [staying.submit(rows(1, seed=i)) for i in range(8)]
    leaving.connection.close()
    for id in ids:
        assert isinstance((await staying.answer(id))[0], Result)


async def test_one_poisonous_query_fails_alone(executor, tmp_path):
    # Gather raises for an index outside the table, and the whole batch with it.
    table = helper.make_tensor("table", TensorProto.FLOAT, [3, 2], [0, 1, 10, 11, 20, 21])
    path = save(
        tmp_path / "gather.onnx",
        [helper.make_node("Gather", ["table", "i"], ["v"])],
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["b"])],
        [helper.make_tensor_value_info("v", TensorProto.FLOAT, ["b", 2])],
        [table],
    )
    signature = Signature((TensorSpec("i", "INT64", (-1,)),), (TensorSpec("v", "FP32", (-1, 2)),))
    # All four in one batch, which is full with them.
    spec = application(signature=signature, policy="proteus")
    gateway = await executor.applied(1, [resident(variant(1, path), 0.02, max_batch=4)], [spec], [path])
    ids = [gateway.submit({"i": np.array([i], np.int64)}) for i in (0, 1, 99, 2)]
    answers = [await gateway.answer(id) for id in ids]
    refusal = answers.pop(2)[0]
    assert (refusal.code, refusal.retryable) == ("failed", False)
    assert "99" in refusal.message
    assert [answer["v"][0].tolist() for _, answer in answers] == [[0, 1], [10, 11], [20, 21]]


async def test_overload_is_refused_retryably_and_reported(tmp_path, tiny_models):
    path = tiny_models["heavy"]
    async with Executor(tmp_path, queue_rows="8") as executor:
        gateway = await executor.applied(1, [resident(variant(1, path), 0.004, max_batch=4)], [application()], [path])
        ids = [gateway.submit(rows(1, seed=i), budget_s=60.0) for i in range(100)]
        answers = [(await gateway.answer(id))[0] for id in ids]
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        assert refused and {(r.code, r.retryable) for r in refused} == {("overloaded", True)}
        assert len(answers) - len(refused) >= 8
        report = await executor.node.next(OverloadReport)
        assert (report.application, report.arrived, report.refused) == ("app", 100, len(refused))


async def test_queues_statistics_and_metrics_are_told(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(3, path), 0.05)], [DELAYED], [path])
    gateway.connection.send(Moved(1))
    id = gateway.submit(rows(2), budget_s=1.0)
    await gateway.next(ExecutorState, lambda state: state.queued == {"app": 2})
    await gateway.answer(id)
    assert await gateway.until(lambda: gateway.state().queued == {})
    stats = (await executor.node.next(StatsReport, lambda m: m.stats.variants)).stats
    assert (stats.variants[0].variant, stats.variants[0].rows, stats.plan_version) == (3, 2, 1)
    assert stats.busy > 0 and stats.memory_bytes > 2**20
    executor.node.connection.send(MetricsRequest())
    text = (await executor.node.next(Metrics)).text
    line = 'nereus_executor_queries_total{application="app",device="box/cpu0",outcome="ok",variant="v3"} 1.0'
    assert line in text
    assert 'nereus_executor_warm_variants{device="box/cpu0",role="planned"} 1.0' in text


async def test_a_peer_that_breaks_the_protocol_loses_only_its_own_connection(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    silent, garbage, stranger, posing = [await executor.peer("") for _ in range(4)]
    silent.connection.send(Moved(1))
    garbage.connection.transport.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    stranger.connection.send(Hello("browser", "x"))
    posing.connection.send(Hello("gateway", "x"))
    posing.connection.send(MetricsRequest())
    for peer in (silent, garbage, stranger, posing):
        await asyncio.wait_for(peer.closed.wait(), 60)
    assert isinstance((await gateway.query(rows(1)))[0], Result)
