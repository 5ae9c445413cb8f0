"""Profile jobs on a real executor."""

from __future__ import annotations

import asyncio

import numpy as np
import onnxruntime as ort
import pytest

from tests.executor.harness import WIDE, application, order, resident, rows, save_graph, turning, variant
from workers.protocol.control import ProfileDone, ProfileFailed, ProfileProgress
from workers.protocol.frames import MeasureCancel, Results, StatsReport
from workers.protocol.specs import ValidationSpec


async def ended(executor, job: int):
    return await executor.node.next(ProfileDone | ProfileFailed, lambda message: message.job == job)


async def test_every_power_of_two_up_to_the_largest_batch_is_measured(executor, tiny_models):
    path = tiny_models["medium"]
    executor.node.connection.send(order(1, path, max_batch=6))
    done = await ended(executor, 1)
    assert [point.batch for point in done.points] == [1, 2, 4, 6]
    for point in done.points:
        assert 0 < point.p50_s <= point.p95_s and point.samples >= 5
    assert done.load_s > 0 and done.memory_bytes >= path.stat().st_size
    progress = [m for m in executor.node.of(ProfileProgress) if m.job == 1]
    assert [m.phase for m in progress[:2]] == ["loading", "measuring"]
    parts = [m.done for m in progress]
    assert parts == sorted(parts) and parts[-1] == 1.0


async def test_growing_stops_with_the_first_batch_past_the_slo(executor, tiny_models):
    executor.node.connection.send(order(1, tiny_models["heavy"], application(slo_s=60.0), max_batch=64))
    freely = (await ended(executor, 1)).points
    # Between the first and the last, whatever the machine's pace is.
    slo_s = (freely[0].p50_s * freely[-1].p50_s) ** 0.5
    executor.node.connection.send(order(2, tiny_models["heavy"], application(slo_s=slo_s), max_batch=64))
    done = await ended(executor, 2)
    assert done.points[-1].p95_s > slo_s
    assert all(point.p95_s <= slo_s for point in done.points[:-1])


async def test_serving_goes_on_while_a_busy_device_measures(executor, tiny_models):
    path = tiny_models["medium"]
    gateway = await executor.applied(1, [resident(variant(1, path), 0.003)], [application()], [path])
    executor.node.connection.send(order(1, tiny_models["quick"], max_batch=64))
    answers, finished = [], asyncio.create_task(ended(executor, 1))

    async def client(seed):
        while not finished.done():
            answers.append((await gateway.query(rows(1, seed)))[0])

    await asyncio.gather(*(client(i) for i in range(16)))
    assert [point.batch for point in (await finished).points] == [1, 2, 4, 8, 16, 32, 64]
    assert len(answers) > 50
    assert all(isinstance(answer, Results) for answer in answers)
    await executor.node.next(StatsReport, lambda message: message.stats.profiling > 0)


async def test_a_first_run_hands_queries_back_and_is_ended_at_its_limit(executor, tiny_models, tmp_path):
    quick = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, quick))], [application()], [quick])
    spec = application("endless", slo_s=0.5, signature=WIDE)
    executor.node.connection.send(order(2, turning(tmp_path / "endless.onnx", 10**9), spec, first=True))
    # Another device can take what would be late here.
    while isinstance(refused := (await gateway.query(rows(1), budget_s=2.0))[0], Results):
        pass
    assert (refused.code, refused.retryable) == ("draining", True)
    waits = gateway.dispatch(rows(1))
    failed = await ended(executor, 2)
    assert failed.message == "the first run of one row took longer than 5 s and was stopped"
    assert isinstance((await gateway.answer(waits))[0], Results)
    await gateway.until(lambda: not gateway.state().busy_s)


async def test_accuracy_is_measured_on_a_validation_set(executor, tiny_models, tmp_path):
    path = tiny_models["quick"]
    x = rows(150)["x"]
    best = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].argmax(axis=1)
    labels = best.copy()
    labels[:30] = (labels[:30] + 1) % 3
    np.savez(tmp_path / "set.npz", x=x, labels=labels)
    spec = ValidationSpec("0" * 64, "top1")
    executor.node.connection.send(order(1, path, validation=spec, validation_path=str(tmp_path / "set.npz")))
    done = await ended(executor, 1)
    assert (done.accuracy, done.validated_rows) == (pytest.approx(80.0), 150)
    assert "validating" in {m.phase for m in executor.node.of(ProfileProgress)}


@pytest.mark.parametrize(
    ("arrays", "metric", "message"),
    [
        ({"x": np.zeros((2, 5), np.float32), "labels": [0, 1]}, "top1", "x: shape must be [-1, 4], not [2, 5]"),
        ({"x": np.zeros((2, 4), complex), "labels": [0, 1]}, "top1", "x: must be FP32, not complex128"),
        ({"x": np.zeros((2, 4), np.float32), "labels": [0, 3]}, "top1", "labels: must be from 0 to 2, found 0 to 3"),
        ({"x": np.zeros((2, 4), np.float32), "labels": [0, 1]}, "top5", "top5: needs at least 5 classes"),
        ({"x": np.zeros((2, 4), np.float32), "labels": [0, 1]}, "bleu", "metric 'bleu': must be one of top1"),
        ({"x": np.array([[{}]], dtype=object), "labels": [0]}, "top1", "not a readable .npz"),
    ],
)
async def test_an_unfit_validation_set_is_named(arrays, metric, message, tmp_path):
    from workers import metrics
    from workers.executor import validation

    np.savez(tmp_path / "set.npz", **{name: np.asarray(value) for name, value in arrays.items()})
    with pytest.raises((validation.ValidationError, metrics.MetricError)) as error:
        _, labels = validation.read(str(tmp_path / "set.npz"), application().signature)
        metrics.create(metric).add({"y": np.zeros((len(labels), 3), np.float32)}, labels)
    assert message in str(error.value)


async def test_what_cannot_be_measured_fails_with_a_reason_and_the_next_job_goes_on(executor, tiny_models, tmp_path):
    text = "g (float[b, 4] x) => (float[n, 4] y) <int64[2] one = {1, 4}> { y = Reshape(x, one) }"
    fixed = save_graph(tmp_path / "fixed.onnx", text)
    (tmp_path / "set.npz").write_bytes(b"no zip")
    unread = {"validation": ValidationSpec("0" * 64, "top1"), "validation_path": str(tmp_path / "set.npz")}
    for message, why in (
        (order(1, tmp_path / "absent.onnx"), "is missing"),
        (order(2, fixed, application(signature=WIDE)), "batch 2: "),
        (order(3, tiny_models["quick"], max_batch=0), "max_batch: must be at least 1, not 0"),
        (order(4, tiny_models["quick"], max_batch=1, **unread), "validation: not a readable .npz"),
    ):
        executor.node.connection.send(message)
        assert why in (await ended(executor, message.order.job)).message
    executor.node.connection.send(order(5, tiny_models["quick"], max_batch=1))
    assert isinstance(await ended(executor, 5), ProfileDone)


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_job_that_is_cancelled_or_replaced_answers_nothing(executor, tiny_models, tmp_path, cancelled):
    send = executor.node.connection.send
    spec = application("endless", slo_s=1.0, signature=WIDE)
    send(order(1, turning(tmp_path / "endless.onnx", 10**9), spec, first=True))
    await executor.node.next(ProfileProgress, lambda message: message.job == 1 and message.phase == "loading")
    if cancelled:
        send(MeasureCancel(1))
    send(order(2, tiny_models["quick"], max_batch=1))
    assert isinstance(await ended(executor, 2), ProfileDone)
    assert {m.job for m in executor.node.messages if isinstance(m, ProfileDone | ProfileFailed)} == {2}
