"""The content of a dispatched batch, on a real executor."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.executor.harness import Executor, Peer, application, resident, rows, save_graph, variant
from tests.wild import models
from workers.executor.codec import DTYPES
from workers.protocol.frames import Refusal, RequestShape, Results, RunBatch, StatsReport, TensorHeader, Withdraw
from workers.protocol.specs import Signature, TensorSpec

#: short enough to run on arrival, and too long for that
SOON_S, LONG_S = 0.00005, 0.02
MIXED = Signature(
    (TensorSpec("flag", "BOOL", (-1, 1)), TensorSpec("ids", "INT64", (-1, 2)), TensorSpec("x", "FP32", (-1, 3))),
    (TensorSpec("picked", "FP32", (-1, 3)), TensorSpec("next", "INT64", (-1, 2)), TensorSpec("not", "BOOL", (-1, 1))),
)
LOOK_UP = Signature((TensorSpec("ids", "INT64", (-1, 1)),), (TensorSpec("y", "FP32", (-1, 1, 2)),))


@pytest.fixture(params=[SOON_S, LONG_S], ids=["in the loop", "in the thread"])
def seconds(request) -> float:
    return request.param


async def serving(executor: Executor, path: Path, signature: Signature, seconds: float = SOON_S, **spec) -> Peer:
    app = msgspec.structs.replace(application(signature=signature), **spec)
    return await executor.applied(1, [resident(variant(1, path), seconds)], [app], [path])


def mixed(path: Path) -> Path:
    """Write a model of three inputs that tells rows and types apart.

    ``picked`` = x where the flag is set, else 0; ``next`` = ids + 1; ``not`` = the other flag.
    """
    return save_graph(
        path,
        """g (bool[b, 1] flag, int64[b, 2] ids, float[b, 3] x) => (float[b, 3] picked, int64[b, 2] next, bool[b, 1] not)
        <float[1] zero = {0}, int64[1] one = {1}> {
            picked = Where(flag, x, zero)
            next = Add(ids, one)
            not = Not(flag)
        }""",
    )


def look_up(path: Path) -> Path:
    """A row of a table for each id; ids that it does not have make the run fail."""
    table = ", ".join(map(str, range(10)))
    text = f"g (int64[b, 1] ids) => (float[b, 1, 2] y) <float[5, 2] table = {{{table}}}> {{ y = Gather(table, ids) }}"
    return save_graph(path, text)


def query(count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "flag": random.integers(0, 2, (count, 1)).astype(bool),
        "ids": random.integers(-9, 9, (count, 2)),
        "x": random.normal(size=(count, 3)).astype(np.float32),
    }


def expected(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    picked = np.where(arrays["flag"], arrays["x"], np.float32(0))
    return {"picked": picked, "next": arrays["ids"] + 1, "not": ~arrays["flag"]}


async def same(peer: Peer, id: int, outputs: dict[str, np.ndarray]) -> Results:
    message, found = await peer.answer(id)
    assert isinstance(message, Results), message
    assert found.keys() == outputs.keys()
    for name, array in outputs.items():
        np.testing.assert_array_equal(found[name], array)
    return message


async def test_queries_of_several_sizes_stand_in_one_run_and_one_answer(executor, tmp_path, seconds):
    peer = await serving(executor, mixed(tmp_path / "m.onnx"), MIXED, seconds)
    # Three rows of flags are three bytes: what stands behind them is not where its type wants it.
    queries = {id: query(1 + id % 3, id) for id in range(1, 8)}
    peer.grant(queries, number=77)
    for id, arrays in queries.items():
        message = await same(peer, id, expected(arrays))
        assert (message.number, message.ids, message.batch_rows) == (77, tuple(queries), 14)
    assert len(peer.of(Results)) == 1


async def test_each_gets_the_outputs_that_it_wants(executor, tmp_path):
    peer = await serving(executor, mixed(tmp_path / "m.onnx"), MIXED)
    queries = {id: query(2, id) for id in range(1, 5)}
    wanted = {1: ("next",), 2: ("not", "picked"), 3: (), 4: ("next",)}
    peer.grant(queries, outputs=wanted)
    for id, arrays in queries.items():
        message = await same(peer, id, {name: expected(arrays)[name] for name in wanted[id] or expected(arrays)})
        # They ran together all the same.
        assert message.batch_rows == 8


async def test_those_that_are_taken_out_leave_the_others_their_own_inputs(executor, tmp_path):
    peer = await serving(executor, mixed(tmp_path / "m.onnx"), MIXED, LONG_S)
    queries = {id: query(1 + id % 4, id) for id in range(1, 10)}
    # Something to wait for: the device's thread has the first batch when the second arrives.
    peer.grant({id: query(400, id) for id in range(100, 110)}, max_rows=1, budgets=dict.fromkeys(range(100, 110), 60.0))
    peer.grant(queries, budgets={2: -0.5, 9: -0.5} | {id: 60.0 for id in queries if id not in (2, 9)})
    for id in (1, 5, 6):
        peer.connection.send(Withdraw(id))
    for id in (2, 9):
        refusal, _ = await peer.answer(id)
        assert (refusal.code, refusal.retryable) == ("late", False)
    for id in (3, 4, 7, 8):
        message = await same(peer, id, expected(queries[id]))
        assert message.batch_rows == sum(1 + id % 4 for id in (3, 4, 7, 8))
    assert peer.answers.keys().isdisjoint({1, 5, 6})


async def test_a_poisonous_query_fails_by_itself(executor, tmp_path, seconds):
    peer = await serving(executor, look_up(tmp_path / "m.onnx"), LOOK_UP, seconds)
    queries = {id: {"ids": np.array([[id]], np.int64)} for id in (0, 1, 77, 3)}
    peer.grant(queries)
    refusal, _ = await peer.answer(77)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.retryable) == ("failed", False)
    assert "v1: " in refusal.message and "77" in refusal.message
    for id in (0, 1, 3):
        await same(peer, id, {"y": np.array([[[2.0 * id, 2.0 * id + 1]]], np.float32)})
    peer.grant({88: {"ids": np.array([[-77]], np.int64)}})
    refusal, _ = await peer.answer(88)
    assert refusal.code == "failed"


async def test_an_error_quotes_its_own_query_alone_and_the_log_quotes_none(executor, tmp_path, seconds):
    peer = await serving(executor, look_up(tmp_path / "m.onnx"), LOOK_UP, seconds)
    poison = (424242, 535353)
    peer.grant({id: {"ids": np.array([[id]], np.int64)} for id in (1, *poison)})
    for id, other in (poison, poison[::-1]):
        refusal, _ = await peer.answer(id)
        assert str(id) in refusal.message and str(other) not in refusal.message
    # What the process logged stands in the file once it has ended.
    await executor.terminate()
    log = (tmp_path / "log").read_text()
    assert not [id for id in poison if str(id) in log], log


async def test_text_is_read_query_by_query(executor, tmp_path):
    peer = await serving(executor, models.text(tmp_path / "m.onnx"), models.TEXT)
    words = {1: ["wood"], 2: ["", "straße"], 3: ["iron", "a" * 3000]}
    peer.grant({id: {"text": np.array(some, dtype=object).reshape(-1, 1)} for id, some in words.items()})
    for id, some in words.items():
        message, found = await peer.answer(id)
        assert isinstance(message, Results) and message.batch_rows == 5
        packed = b"".join(len(word.encode()).to_bytes(4, "little") + word.encode() for word in some)
        assert found["again"] == packed
    # One that is no text is that query's alone.
    shapes = tuple(RequestShape(1, (TensorHeader("text", "BYTES", (1, 1), size),)) for size in (5, 6))
    body = [b"\x01\0\0\0\xff", b"\x02\0\0\0ok"]
    peer.connection.send(RunBatch(1, "app", 1, 16, shapes, ((11, 0, 1.0), (12, 1, 1.0))), body)
    refusal, _ = await peer.answer(11)
    assert (refusal.code, refusal.message) == ("invalid", "text: elements must be UTF-8 text")
    assert (await peer.answer(12))[1]["again"] == body[1]


async def test_a_model_for_one_row_runs_row_by_row(executor, tmp_path, seconds):
    peer = await serving(executor, models.single(tmp_path / "m.onnx"), models.SINGLE, seconds)
    queries = {id: rows(id, seed=id) for id in (1, 2, 3)}
    peer.grant(queries)
    for id, arrays in queries.items():
        message = await same(peer, id, {"y": -arrays["x"]})
        assert message.batch_rows == 6


async def test_every_datatype_comes_and_goes_in_columns(executor, tmp_path):
    peer = await serving(executor, models.every(tmp_path / "m.onnx"), models.EVERY)
    queries = {}
    for id in (1, 2):
        whole = np.random.default_rng(id).integers(0, 2, (3, 2))
        queries[id] = {spec.name: whole.astype(DTYPES[spec.datatype]) for spec in models.EVERY.inputs}
    peer.grant(queries)
    for id, arrays in queries.items():
        await same(peer, id, {f"out_{name}": array for name, array in arrays.items()})
    assert len(peer.of(Results)) == 1


async def test_inputs_in_another_order_are_refused(executor, tmp_path):
    peer = await serving(executor, mixed(tmp_path / "m.onnx"), MIXED, late="serve")
    arrays = query(1, 1)
    peer.grant({500: dict(reversed(arrays.items()))})
    refusal, _ = await peer.answer(500)
    assert refusal.code == "invalid" and "does not fit the signature of app" in refusal.message


async def test_empty_rows_have_outputs_too(executor, tmp_path):
    peer = await serving(executor, models.negative(tmp_path / "m.onnx"), models.VECTORS)
    queries = {1: np.zeros((2, 0), np.float32), 2: np.ones((1, 3), np.float32), 3: np.zeros((1, 0), np.float32)}
    peer.grant({id: {"x": x} for id, x in queries.items()})
    for id, x in queries.items():
        await same(peer, id, {"y": -x})


async def test_a_large_batch_arrives_whole(executor, tmp_path):
    peer = await serving(executor, models.negative(tmp_path / "m.onnx"), models.VECTORS)
    for base, size in ((10, 150_000), (20, 150_000), (30, 5_000), (40, 9_000_000)):
        queries = {base + i: np.random.default_rng(i).random((1, size), np.float32) for i in range(2)}
        peer.grant({id: {"x": x} for id, x in queries.items()}, budgets=dict.fromkeys(queries, 60.0))
        for id, x in queries.items():
            await same(peer, id, {"y": -x})


async def test_what_granted_batches_did_is_accounted_for(executor, tmp_path, seconds):
    peer = await serving(executor, look_up(tmp_path / "m.onnx"), LOOK_UP, seconds)
    for first in range(0, 400, 4):
        ids = {1000 + id: {"ids": np.array([[id % 5]], np.int64)} for id in range(first, first + 4)}
        peer.grant(ids | {5000 + first: {"ids": np.array([[99]], np.int64)}} if first < 40 else ids)
        for id in ids:
            await peer.answer(id)
    node = executor.node
    await node.until(lambda: sum(v.rows for r in node.of(StatsReport) for v in r.stats.variants) == 410)
    found = [v for report in node.of(StatsReport) for v in report.stats.variants]
    assert sum(v.batches for v in found) == 100 and {v.application for v in found} == {"app"}
    assert sum(v.busy_s for v in found) > 0 and found[-1].drift > 0
    families = {f.name: f for f in text_string_to_metric_families(await executor.metrics())}
    outcomes = {s.labels["outcome"]: s.value for s in families["nereus_executor_queries"].samples}
    assert (outcomes["ok"], outcomes["failed"]) == (400, 10)
    counts = {f: [s.value for s in families[f].samples if s.name.endswith("_count")] for f in families}
    assert counts["nereus_executor_queue_seconds"] == [410]
    assert counts["nereus_executor_batch_rows"] == counts["nereus_executor_run_seconds"] == [100]
