"""A real executor finds rows of validation sets and batches that are dependent."""

from __future__ import annotations

import asyncio

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.executor.harness import Executor, application, order, resident, variant
from tests.gateway.alone_models import dependent
from workers.protocol.control import FaultReport, ProfileDone
from workers.protocol.specs import Signature, TensorSpec, ValidationSpec

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("y", "FP32", (-1, 2)),))


@pytest.fixture
async def executor(tmp_path):
    async with Executor(tmp_path) as running:
        yield running


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
