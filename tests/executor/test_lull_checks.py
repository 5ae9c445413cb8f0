"""A real executor finds rows of validation sets and batches that are dependent."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest

from tests.executor.harness import WAIT_S, application, order, resident, save_graph, variant
from tests.executor.test_on_arrival import InThisProcess
from tests.gateway.alone_models import dependent
from tests.wild import models
from tools.waiting import eventually_async
from workers.executor import lull_checks, padding
from workers.protocol.control import FaultReport, ProfileDone
from workers.protocol.frames import Results
from workers.protocol.specs import Signature, TensorSpec, ValidationSpec

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("y", "FP32", (-1, 2)),))


def saved(tmp_path, name: str):
    path = tmp_path / f"{name}.onnx"
    onnx.save(dependent()[name].proto, path)
    return path


async def mixed(executor) -> FaultReport:
    return await executor.node.next(FaultReport, lambda report: report.cause == "mixed")


async def test_a_served_batch_whose_queries_influence_each_other_is_found_in_a_lull(executor, tmp_path):
    path = saved(tmp_path, "sum")
    spec = application(slo_s=60.0, signature=SIGNATURE)
    gateway = await executor.applied(1, [resident(variant(1, path), 0.003)], [spec], [path])
    session = onnxruntime.InferenceSession(path)
    reported, last = asyncio.create_task(mixed(executor)), 0

    async def together() -> list[np.ndarray]:
        nonlocal last
        first, last = last + 1, last + 3
        gateway.grant({id: {"x": np.full((2, 2), id, np.float32)} for id in range(first, last + 1)})
        return [(await gateway.answer(id))[1]["y"] for id in range(first, last + 1)]

    while not reported.done():
        await together()
    assert "beside other queries" in (await reported).detail
    # At once, though no plan and no gateway knows of it yet.
    for id, answer in enumerate(await together(), last - 2):
        np.testing.assert_allclose(answer, session.run(None, {"x": np.full((2, 2), id, np.float32)})[0])


@pytest.fixture
async def in_this_process(tmp_path):
    async with InThisProcess(tmp_path) as running:
        yield running


async def padding_gateway(executor: InThisProcess, path, signature: Signature):
    spec = msgspec.structs.replace(application(slo_s=60.0, signature=signature), padding={"x": 0.0})
    return await executor.applied(1, [resident(variant(1, path), 0.003)], [spec], [path])


def running_sums(path):
    """Write a model that adds up the rows before each one, of any length."""
    text = "g (float[rows, length] x) => (float[rows, length] y) <int64 axis = {0}> { y = CumSum(x, axis) }"
    return save_graph(path, text)


@pytest.mark.parametrize(("make", "alone"), [(running_sums, True), (models.negative, False)])
async def test_padded_queries_are_checked_in_a_lull(in_this_process, tmp_path, monkeypatch, make, alone):
    monkeypatch.setattr(lull_checks, "EVERY_S", 0.0)
    compare, checked = lull_checks.mixed, []

    async def noted(model, kept, step) -> str:
        difference = await compare(model, kept, step)
        checked.append((kept, difference))
        return difference

    monkeypatch.setattr(lull_checks, "mixed", noted)
    gateway = await padding_gateway(in_this_process, make(tmp_path / "m.onnx"), models.VECTORS)
    loaded, last = in_this_process.device.residents.variants[1], 0
    while not checked:
        first, last = last + 1, last + 3
        gateway.grant({id: {"x": np.full((2, 1 + id - first), id, np.float32)} for id in range(first, last + 1)})
        for id in range(first, last + 1):
            assert (await gateway.answer(id))[1]["y"].shape == (2, 1 + id - first)
    kept, difference = checked[0]
    # All at the longest one's length.
    assert (kept.inputs["x"].shape, kept.rows) == ((6, 3), (2, 2, 2))
    assert (difference.startswith("y: beside other queries"), loaded.model.alone) == (alone, alone)

    # Whatever was wanted before, the next tick knows better.
    loaded.wants_batch = alone
    await eventually_async(lambda: loaded.wants_batch is not alone, WAIT_S)


async def test_a_batch_too_large_to_be_padded_is_answered_and_not_kept(in_this_process, tmp_path):
    text = "g (float[rows, height, width] x) => (float[rows, height, width] y) { y = Neg(x) }"
    path = save_graph(tmp_path / "m.onnx", text)
    images = Signature((TensorSpec("x", "FP32", (-1, -1, -1)),), (TensorSpec("y", "FP32", (-1, -1, -1)),))
    gateway = await padding_gateway(in_this_process, path, images)
    loaded = in_this_process.device.residents.variants[1]
    # The first two are too large for a check alone, the others for a run as well.
    for first, side in ((1, 600), (3, 6000)):
        assert (2 * 4 * side**2 > padding.MAX_BYTES) is (side == 6000)
        loaded.wants_batch = True
        queries = {first: np.ones((1, 1, side), np.float32), first + 1: np.ones((1, side, 1), np.float32)}
        gateway.grant({id: {"x": x} for id, x in queries.items()})
        for id, x in queries.items():
            message, found = await gateway.answer(id)
            assert isinstance(message, Results), message
            np.testing.assert_array_equal(found["y"], -x)
        assert loaded.kept is None


async def test_rows_of_the_validation_set_are_held_against_each_other(executor, tmp_path):
    path, rows = saved(tmp_path, "sum"), np.ones((8, 2), np.float32)
    held = tmp_path / "held.npz"
    np.savez(held, x=rows, labels=np.zeros(8, np.int64))
    spec = application(slo_s=60.0, signature=SIGNATURE)
    executor.node.connection.send(
        order(1, path, spec, validation_path=str(held), validation=ValidationSpec("d", "top1"), max_batch=4)
    )
    assert "with rows of the validation set" in (await mixed(executor)).detail
    done = await executor.node.next(ProfileDone)
    # Each row alone: their sums would grow with the rows before.
    assert done.validated_rows == 8
