"""The executor's codec, metrics, latency estimates, and shares of a busy device."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from tests.executor.harness import profile
from workers import metrics
from workers.executor import codec
from workers.executor.estimates import LatencyEstimate
from workers.executor.exclusive import Exclusive, ExclusiveRequest, WorkKind
from workers.protocol.frames import TensorHeader

# --- codec ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("datatype", codec.DTYPES)
def test_arrays_survive_the_wire_wherever_they_stand_in_a_frame(datatype):
    array = np.array([[0, 1], [1, 0], [1, 1]]).astype(codec.DTYPES[datatype])
    data = codec.packed(array)
    header = TensorHeader("a", codec.DATATYPE_OF[array.dtype], array.shape, array.nbytes)
    assert header.datatype == datatype
    for offset in range(3):
        frame = memoryview(b"#" * offset + bytes(data))[offset:]
        back = codec.decode(header, frame)
        np.testing.assert_array_equal(back, array)
        assert back.flags.aligned and back.dtype == array.dtype


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "message"),
    [
        ("FP32", (2,), b"1234", "a: FP32 [2] needs 8 bytes, not 4"),
        ("FP32", (-1,), b"1234", "a: shape [-1] must not have negative sizes"),
        ("FP8", (2,), b"1234", "a: datatype 'FP8' must be BYTES or one of BOOL"),
        ("BYTES", (2**40,), b"", f"a: has 0 BYTES elements; shape [{2**40}] takes {2**40}"),
        ("BYTES", (1,), b"\x05\0\0\0abc", "a: BYTES element at byte 4 is 5 bytes long, 3 are left"),
        ("BYTES", (2,), b"\x01\0\0\0a\x01\0\0", "a: BYTES element at byte 5 has no whole length"),
        ("BYTES", (1,), b"\x01\0\0\0\xff", "a: elements must be UTF-8 text"),
    ],
)
def test_bytes_that_are_not_the_tensor_are_refused(datatype, shape, data, message):
    with pytest.raises(codec.CodecError) as error:
        codec.decode(TensorHeader("a", datatype, shape, len(data)), memoryview(data))
    assert str(error.value).startswith(message)


# --- metrics --------------------------------------------------------------------------------------------------------


def compute(name: str, outputs: np.ndarray | dict[str, np.ndarray], labels: np.ndarray) -> float:
    metric = metrics.create(name)
    metric.add(outputs if isinstance(outputs, dict) else {"y": outputs}, labels)
    return metric.percent()


def test_metrics_in_pieces_equal_metrics_at_once():
    random = np.random.default_rng(1)
    scores, classes = random.normal(size=(101, 7)).astype(np.float32), random.integers(0, 7, 101)
    values = random.normal(size=(101, 2)) * 3 + 1e4
    targets = values + random.normal(size=(101, 2))
    cases = {
        "top1": (scores, classes),
        "top5": (scores, classes),
        "binary": (random.random((101, 1), np.float32), random.integers(0, 2, 101)),
        "binary_logit": (random.normal(size=101).astype(np.float32), random.integers(0, 2, 101)),
        "r2": (values, targets),
    }
    assert set(cases) == set(metrics.names())
    for name, (outputs, labels) in cases.items():
        metric = metrics.create(name)
        for start in range(0, 101, 8):
            metric.add({"y": outputs[start : start + 8]}, labels[start : start + 8])
        assert metric.percent() == pytest.approx(compute(name, outputs, labels))


def test_metrics_give_known_values():
    scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], np.float32)
    assert compute("top1", scores, np.array([1, 0, 0, 0])) == 75.0
    labels = {"label": np.array([2, 5, 5]), "scores": np.zeros((3, 1), np.float32)}
    assert compute("top1", labels, np.array([2, 5, 4])) == pytest.approx(200 / 3)
    words = np.array(["cat", "dog"], dtype=object)
    assert compute("top1", words, np.array(["cat", "cow"])) == 50.0
    ranked = np.arange(6, dtype=np.float32)[None, :].repeat(2, axis=0)
    assert compute("top5", ranked, np.array([1, 0])) == 50.0
    assert compute("binary", np.array([0.4, 0.5, 0.9], np.float32), np.array([0, 1, 0])) == pytest.approx(200 / 3)
    assert compute("binary_logit", np.array([-0.1, 0.0], np.float32), np.array([0, 1])) == 100.0
    truth = np.array([1.0, 2.0, 3.0, 4.0])
    # 1 - 1/5: one residual of 1, total sum of squares 5
    assert compute("r2", np.array([1.0, 2.0, 3.0, 5.0]), truth) == pytest.approx(80.0)
    assert compute("r2", -truth, truth) == 0.0


@pytest.mark.parametrize(
    ("name", "outputs", "labels", "message"),
    [
        ("top9", np.zeros((1, 2)), np.zeros(1), "metric 'top9': must be one of top1, top5"),
        ("top1", np.zeros((2, 3)), np.zeros(1, int), "labels: 1 rows, the outputs have 2"),
        ("top1", np.zeros((1, 3)), np.array([0.5]), "labels: must be whole numbers"),
        ("top1", np.zeros((1, 3)), np.zeros((1, 2)), "labels: must have one value a row"),
        ("top1", np.zeros((1, 3, 3)), np.zeros(1, int), "top1: needs an output of scores"),
        ("top1", np.zeros((0, 3)), np.zeros(0, int), "labels: at least one row"),
        ("binary", np.zeros((1, 2)), np.zeros(1, int), "binary: needs an output of one score a row"),
        ("binary", np.zeros(1), np.array([2]), "labels: must be from 0 to 1"),
        ("r2", np.zeros(3), np.ones(3), "labels: r2 needs labels that are not all equal"),
        ("r2", np.zeros((3, 2)), np.ones(3), "r2: outputs 2 values a row, labels 1"),
        ("r2", np.zeros(2), np.array(["a", "b"]), "labels: must be numbers for r2"),
        ("r2", np.zeros(1), np.ones(1), "labels: r2 needs at least two rows"),
    ],
)
def test_what_does_not_fit_a_metric_is_said(name, outputs, labels, message):
    with pytest.raises(metrics.MetricError) as error:
        compute(name, outputs, labels)
    assert str(error.value).startswith(message)


# --- estimates ------------------------------------------------------------------------------------------------------


def test_drift_is_reported_after_a_while_with_enough_batches_and_not_too_often():
    estimate = LatencyEstimate(profile(0.01))
    reports = []
    for tick in range(4000):
        now = tick * 0.1
        estimate.observe(now, 2, 0.03)
        ratio = estimate.drifted(now)
        if ratio is not None:
            reports.append((round(now), ratio))
    assert [at for at, _ in reports] == [20, 320]
    assert reports[0][1] == pytest.approx(2.0)
    seldom = LatencyEstimate(profile(0.01))
    for tick in range(49):
        seldom.observe(tick, 1, 0.03)
        assert seldom.drifted(tick) is None
    within = LatencyEstimate(profile(0.01))
    for tick in range(500):
        within.observe(tick, 1, 0.014)
        assert within.drifted(tick) is None


# --- exclusive ------------------------------------------------------------------------------------------------------


async def test_measuring_gets_its_share_of_a_busy_device_and_no_more():
    loop = asyncio.get_running_loop()
    exclusive = Exclusive(0.05)
    now, measured = 0.0, 0.0
    while now < 60.0:
        exclusive.add(ExclusiveRequest(WorkKind.MEASURE, print, loop.create_future(), 0.02))
        request = exclusive.before_batches(now)
        while request is None:
            now += 0.004  # a batch
            request = exclusive.before_batches(now)
        request.future.cancel()
        now += 0.02
        measured += 0.02
        exclusive.measured(now, 0.02)
    assert measured / now == pytest.approx(0.05, abs=0.003)


async def test_plan_work_takes_turns_with_batches():
    loop = asyncio.get_running_loop()
    exclusive = Exclusive(0.05)
    for _ in range(2):
        exclusive.add(ExclusiveRequest(WorkKind.PLAN, print, loop.create_future()))
    kinds = [request and request.kind for request in (exclusive.before_batches(0.0) for _ in range(5))]
    assert kinds == [WorkKind.PLAN, None, WorkKind.PLAN, None, None]


async def test_long_plan_work_waits_for_batches_that_were_there_before():
    loop = asyncio.get_running_loop()
    exclusive = Exclusive(0.05)
    exclusive.add(ExclusiveRequest(WorkKind.PLAN, print, loop.create_future(), expected_s=0.3, added=5.0))
    assert exclusive.plan_s() == 0.3
    assert [exclusive.before_batches(5.1, oldest=4.9) for _ in range(3)] == [None] * 3, "they were there before"
    assert exclusive.before_batches(5.2, oldest=5.1).kind is WorkKind.PLAN and exclusive.plan_s() == 0.0
    exclusive.add(ExclusiveRequest(WorkKind.PLAN, print, loop.create_future(), expected_s=0.001, added=5.0))
    assert exclusive.plan_s() == 0.0, "short work delays no query"
    assert any(exclusive.before_batches(5.3, oldest=4.9) for _ in range(2)), "batches and plan work alternate"
    dropped = ExclusiveRequest(WorkKind.PLAN, print, loop.create_future(), expected_s=0.3, added=5.0)
    exclusive.add(dropped)
    dropped.future.cancel()
    assert exclusive.plan_s() == 0.0


async def test_a_long_measuring_step_waits_for_a_quiet_device():
    loop = asyncio.get_running_loop()
    exclusive = Exclusive(0.05)
    exclusive.measured(0.0, 1.0)
    exclusive.add(ExclusiveRequest(WorkKind.MEASURE, print, loop.create_future(), expected_s=0.05))
    assert exclusive.when_idle(5.0, last_arrival=4.9, tightest_slo_s=0.3) == (None, 5.9)
    assert exclusive.when_idle(5.0, last_arrival=4.9, tightest_slo_s=0.6)[0].kind is WorkKind.MEASURE
    assert exclusive.when_idle(5.0, last_arrival=4.9, tightest_slo_s=0.3) == (None, math.inf)
    exclusive.add(ExclusiveRequest(WorkKind.MEASURE, print, loop.create_future(), expected_s=0.05))
    assert exclusive.when_idle(6.0, last_arrival=4.9, tightest_slo_s=0.3)[0].kind is WorkKind.MEASURE
