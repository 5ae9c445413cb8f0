"""Queries of different shapes on a real executor, and measuring with them: never in one run unless padded."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.executor.harness import Executor, Peer, application, order, resident, variant
from workers.executor.codec import DTYPES
from workers.protocol.control import ProfileDone, ProfileFailed
from workers.protocol.frames import Refusal, Results

from . import models


@pytest.fixture
async def executor(tmp_path):
    async with Executor(tmp_path) as running:
        yield running


async def serving(executor, path, padding=None) -> Peer:
    spec = msgspec.structs.replace(application(signature=models.TOKENS), padding=padding or {})
    return await executor.applied(1, [resident(variant(1, path), 0.001)], [spec], [path])


def sequence(length: int, rows: int = 1) -> dict[str, np.ndarray]:
    ids = np.arange(1, rows * length + 1, dtype=np.int64).reshape(rows, length)
    return {"ids": ids, "mask": np.ones_like(ids)}


def grant(peer: Peer, *queries: dict[str, np.ndarray]) -> None:
    peer.grant(dict(enumerate(queries, 1)), budgets=dict.fromkeys(range(1, len(queries) + 1), 60.0))


async def outputs(peer: Peer, id: int) -> dict[str, np.ndarray]:
    message, arrays = await peer.answer(id)
    assert isinstance(message, Results), message
    return arrays


async def test_padded_queries_share_a_run_and_get_their_own_lengths_back(executor, tmp_path):
    peer = await serving(executor, models.tokens(tmp_path / "m.onnx"), {"ids": 9.0, "mask": 0.0})
    given = [sequence(2), sequence(5, rows=2), sequence(0)]
    grant(peer, *given)
    for id, arrays in enumerate(given, 1):
        found = await outputs(peer, id)
        # The model saw the longest of them.
        assert found["width"].tolist() == [5] * len(arrays["ids"])
        np.testing.assert_array_equal(found["masked"], arrays["ids"])
        assert found["total"].tolist() == arrays["ids"].sum(axis=1).tolist()


@pytest.mark.parametrize("datatype", models.PASSED)
@pytest.mark.parametrize("rows", [1, 3])
async def test_outputs_that_are_inputs_come_back_as_they_were(executor, tmp_path, datatype, rows):
    signature = models.PASSED[datatype]
    path = models.passed(tmp_path / "m.onnx", datatype)
    peer = await executor.applied(1, [resident(variant(1, path), 0.001)], [application(signature=signature)], [path])
    x = np.arange(1, rows * signature.inputs[0].shape[1] + 1).reshape(rows, -1).astype(DTYPES[datatype])
    negative = ~x if datatype == "BOOL" else -x
    for id in (1, 2):
        peer.grant({id: {"x": x}}, budgets={id: 60.0})
        found = await outputs(peer, id)
        np.testing.assert_array_equal(found.pop("x"), x)
        assert found
        for array in found.values():
            np.testing.assert_array_equal(array, negative)


async def test_outputs_are_padded_with_the_value_that_the_application_names(executor, tmp_path):
    path = models.tokens(tmp_path / "m.onnx", out="another")
    peer = await serving(executor, path, {"ids": 9.0, "mask": 1.0})
    grant(peer, sequence(2), sequence(4))
    # An output whose dimension is called something else is the application's own to read.
    assert (await outputs(peer, 1))["masked"].tolist() == [[1, 2, 9, 9]]


async def test_unlike_queries_in_one_grant_run_one_after_the_other(executor, tmp_path):
    peer = await serving(executor, models.tokens(tmp_path / "m.onnx"))
    grant(peer, sequence(2), sequence(5), sequence(2))
    assert [(await outputs(peer, id))["width"].tolist() for id in (1, 2, 3)] == [[2], [5], [2]]


async def test_lengths_that_contradict_each_other_cost_that_query_alone(executor, tmp_path):
    peer = await serving(executor, models.tokens(tmp_path / "m.onnx"), {"ids": 0.0, "mask": 0.0})
    broken = {"ids": sequence(5)["ids"], "mask": sequence(3)["mask"]}
    grant(peer, sequence(5), broken, sequence(4))
    refusal, _ = await peer.answer(2)
    assert isinstance(refusal, Refusal) and refusal.code == "failed" and not refusal.retryable
    assert (await outputs(peer, 1))["width"].tolist() == (await outputs(peer, 3))["width"].tolist() == [5]


async def test_padding_that_would_blow_up_memory_is_not_done(executor, tmp_path):
    peer = await serving(executor, models.tokens(tmp_path / "m.onnx"), {"ids": 0.0, "mask": 0.0})
    # Padded to the longest, these 65 rows would take 2 GiB.
    long = sequence(2_000_000)
    grant(peer, long, *(sequence(1, rows=16) for _ in range(4)))
    assert (await outputs(peer, 1))["width"].tolist() == [2_000_000]
    assert (await outputs(peer, 5))["width"].tolist() == [1] * 16


async def measured(executor, spec, path):
    executor.node.connection.send(order(1, path, spec))
    return await executor.node.next(ProfileDone | ProfileFailed)


async def test_a_model_for_one_row_is_measured_with_one_row(executor, tmp_path):
    done = await measured(executor, application(signature=models.SINGLE), models.single(tmp_path / "m.onnx"))
    assert [point.batch for point in done.points] == [1]


async def test_a_model_is_measured_at_the_largest_declared_size(executor, tmp_path):
    # It runs at this length only.
    path = models.tokens_of(tmp_path / "m.onnx", 24)
    inputs = tuple(msgspec.structs.replace(tensor, most=24) for tensor in models.TOKENS.inputs)
    sized = msgspec.structs.replace(models.TOKENS, inputs=inputs)
    done = await measured(executor, application(signature=sized), path)
    assert isinstance(done, ProfileDone), done
    assert [point.batch for point in done.points] == [1, 2, 4, 8]


async def test_without_declared_sizes_a_size_is_found_that_the_model_takes(executor, tmp_path):
    path = models.tokens_of(tmp_path / "m.onnx", 64)
    done = await measured(executor, application(signature=models.TOKENS), path)
    assert isinstance(done, ProfileDone), done


async def test_what_onnxruntime_cannot_run_is_not_loaded(executor, tmp_path):
    path = models.text_beside_bf16(tmp_path / "m.onnx")
    both = type(models.TEXT)(
        (*models.TEXT.inputs, models.EVERY.inputs[-1]), (*models.TEXT.outputs, models.EVERY.outputs[-1])
    )
    done = await measured(executor, application(signature=both), path)
    assert isinstance(done, ProfileFailed) and "BF16 outputs of a model with BYTES inputs" in done.message
