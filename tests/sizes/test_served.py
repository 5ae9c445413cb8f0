"""Size classes from the first measurement to the answer."""

from __future__ import annotations

import asyncio

import httpx2
import msgspec
import numpy as np
import pytest

from tests.executor.harness import Executor, application, encode, order, variant
from tests.gateway.conftest import AUTH, GatewayProcess, config, wait_for
from tests.gateway.test_late_binding import together
from tests.wild import models
from workers.protocol.control import GatewayStats, ProfileDone, ProfileFailed, ProfileProgress
from workers.protocol.frames import Refusal, RequestShape, Results, RunBatch, StatsReport
from workers.protocol.shapes import of_class
from workers.protocol.specs import ApplicationSpec, DevicePlan, PlanSpec, ProfilePoint, Resident, Route

from .longer import SIGNATURE, longer

SHORT, LONG = 16, 2000
ZEROS = {"x": 0.0}


def sized(*sizes: int, slo_s: float = 60.0, signature=SIGNATURE, padding=None) -> ApplicationSpec:
    inputs = tuple(
        msgspec.structs.replace(tensor, most=max(sizes, default=0)) if -1 in tensor.shape[1:] else tensor
        for tensor in signature.inputs
    )
    spec = application("app", slo_s, msgspec.structs.replace(signature, inputs=inputs))
    return msgspec.structs.replace(spec, sizes=sizes, padding=padding or {})


async def measured(executor: Executor, spec: ApplicationSpec, path, max_batch: int = 4):
    executor.node.connection.send(order(1, path, spec, max_batch=max_batch))
    return await executor.node.next(ProfileDone | ProfileFailed)


@pytest.fixture
def path(tmp_path):
    return longer(tmp_path / "longer.onnx")


# --- measuring ------------------------------------------------------------------------------------------------------


async def test_each_class_is_measured_where_latency_grows_with_size(executor, path):
    done = await measured(executor, sized(SHORT, LONG), path)
    assert isinstance(done, ProfileDone), done
    assert [(p.size, p.batch) for p in done.points] == [(0, 1), (0, 2), (0, 4), (SHORT, 1), (SHORT, 2), (SHORT, 4)]
    long, short = of_class(done.points, 0), of_class(done.points, SHORT)
    assert all(many.p50_s > 5 * few.p50_s for many, few in zip(long, short, strict=True))
    parts = [m.done for m in executor.node.of(ProfileProgress)]
    assert parts == sorted(parts) and parts[-1] == 1.0


async def test_a_latency_that_does_not_depend_on_size_is_kept_once(executor, tmp_path):
    path = models.tokens(tmp_path / "flat.onnx")
    done = await measured(executor, sized(1, 2, 3, 4, signature=models.TOKENS), path)
    assert [(p.size, p.batch) for p in done.points] == [(0, 1), (0, 2), (0, 4)]


@pytest.mark.wide
async def test_a_class_stops_growing_at_its_own_limit(executor, path):
    freely = await measured(executor, sized(SHORT, 60 * LONG), path, max_batch=8)
    one_long, eight_short = of_class(freely.points, 0)[0], of_class(freely.points, SHORT)[-1]
    # Between the two on any machine: they are thousands of times apart.
    slo_s = (one_long.p50_s * eight_short.p50_s) ** 0.5
    executor.node.messages.clear()
    done = await measured(executor, sized(SHORT, 60 * LONG, slo_s=slo_s), path, max_batch=8)
    assert [p.batch for p in of_class(done.points, 0)] == [1]
    assert [p.batch for p in of_class(done.points, SHORT)] == [1, 2, 4, 8]


# --- serving --------------------------------------------------------------------------------------------------------


def resident(spec, points: tuple[ProfilePoint, ...], max_batch: int = 8) -> Resident:
    smaller = tuple(point for point in points if point.size)
    return Resident(spec, max_batch, 10.0, 0.5, of_class(points, 0), smaller=smaller)


def profile(long_s: float, short_s: float, batches=(1, 2, 4, 8)) -> tuple[ProfilePoint, ...]:
    both = ((long_s, 0), (short_s, SHORT))
    return tuple(ProfilePoint(batch, some, some, some, 20, size) for some, size in both for batch in batches)


async def started(executor: Executor, start, spec, path, points, control_plane=None, **settings) -> GatewayProcess:
    if control_plane is not None:
        settings |= {"NEREUS_CONTROL_URL": control_plane.url, "NEREUS_JOIN_TOKEN": "t"}
    one = resident(variant(1, path), points)
    await executor.in_force(1, [one], [spec], [path])
    device = DevicePlan(executor.info.id, executor.endpoint, (one,))
    plan = PlanSpec(1, (device,), (Route("app", executor.info.id, 1.0),))
    gateway = start(config(plan, [spec]), **settings)
    await asyncio.to_thread(wait_for, gateway.ready, "the gateway is ready")
    if control_plane is not None:
        await asyncio.to_thread(wait_for, lambda: control_plane.connection, "the gateway joined")
    return gateway


def body(length: int) -> dict:
    data = np.zeros(length, np.float32).tolist()
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, length], "data": data}]}


async def asked(gateway: GatewayProcess, *lengths: int) -> list[httpx2.Response]:
    async with httpx2.AsyncClient(headers=AUTH, timeout=120, verify=False) as http:
        posts = (http.post(gateway.url + "/v2/models/app/infer", json=body(length)) for length in lengths)
        return await asyncio.gather(*posts)


async def test_short_queries_are_answered_within_an_slo_that_is_too_short_for_long_ones(executor, gateways, path):
    # So long that what else the machine does is little beside it.
    very_long = 10 * LONG
    done = await measured(executor, sized(SHORT, very_long, slo_s=0.05), path, max_batch=8)
    # What one row takes at the largest size: no batch at all would fit.
    slo_s = of_class(done.points, 0)[0].p50_s
    assert of_class(done.points, SHORT)[-1].p50_s < slo_s / 4
    spec = sized(SHORT, very_long, slo_s=slo_s)
    gateway = await started(executor, gateways, spec, path, done.points)
    answers = [(await asked(gateway, SHORT))[0] for _ in range(20)]
    assert sum(answer.status_code == 200 for answer in answers) > 10, [answer.text for answer in answers]
    (long,) = await asked(gateway, very_long)
    assert long.status_code == 503, long.text


async def test_padded_queries_run_with_their_own_class_only(executor, gateways, path):
    spec = sized(SHORT, LONG, padding=ZEROS)
    gateway = await started(executor, gateways, spec, path, profile(0.05, 0.002))
    lengths = [3, SHORT, 500, LONG] * 4
    for answer, length in zip(await asked(gateway, *lengths), lengths, strict=True):
        assert answer.status_code == 200, answer.text
        (width,) = answer.json()["outputs"][0]["data"]
        # Padded to the longest of the run, which is of the same class.
        assert (length <= width <= SHORT) if length <= SHORT else (length <= width <= LONG)
        assert answer.json()["parameters"]["batch_size"] <= 8


async def test_a_gateway_counts_arrivals_by_class(executor, gateways, control_plane, path):
    spec = sized(SHORT, LONG)
    gateway = await started(executor, gateways, spec, path, profile(0.05, 0.002), control_plane)
    await asked(gateway, SHORT, SHORT, SHORT + 1, 1)

    def counted() -> dict[int, int]:
        total: dict[int, int] = {}
        for second in control_plane.received(GatewayStats):
            for size, rows in second.applications["app"].arrived_by_size.items():
                total[size] = total.get(size, 0) + rows
        return total

    await asyncio.to_thread(wait_for, lambda: sum(counted().values()) == 4, "all are counted")
    assert counted() == {SHORT: 3, 0: 1}


async def test_queries_that_wait_when_their_class_is_no_more_are_answered_all_the_same(
    executor, gateways, control_plane, path
):
    """Another profile does not know the classes apart, by which queries were scheduled until then."""
    spec = sized(SHORT, LONG, slo_s=60.0)
    points = profile(0.05, 0.002, batches=(1,))
    gateway = await started(executor, gateways, spec, path, points, control_plane, NEREUS_QUEUE_ROWS="1024")
    asking = asyncio.create_task(together(gateway, [body(length) for length in [LONG] * 200 + [SHORT] * 30]))

    def held() -> float:
        lines = gateway.http.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("nereus_gateway_held ")).split()[1])

    await asyncio.to_thread(wait_for, lambda: held() > 30 or asking.done(), "queries wait")
    plan = PlanSpec(
        1, (DevicePlan(executor.info.id, executor.endpoint, (resident(variant(1, path), profile(0.05, 0.002)),)),)
    )
    control_plane.send(config(plan, [msgspec.structs.replace(spec, sizes=(LONG,))]))
    found = await asking
    assert {status for status, _ in found} == {200}, [answers for status, answers in found if status != 200][:3]


async def test_an_application_of_one_class_has_nothing_to_count(executor, gateways, control_plane, path):
    gateway = await started(executor, gateways, sized(LONG), path, profile(0.05, 0.002)[:4], control_plane)
    await asked(gateway, SHORT)

    def arrived():
        return [s for s in control_plane.received(GatewayStats) if s.applications["app"].arrived]

    await asyncio.to_thread(wait_for, arrived, "it is counted")
    assert arrived()[0].applications["app"].arrived_by_size == {}


# --- on the device --------------------------------------------------------------------------------------------------


def sequence(length: int, rows: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.zeros((rows, length), np.float32)}


async def drift(executor: Executor, spec, path, points) -> float:
    """The device's drift for short queries: observed over profiled latency."""
    gateway = await executor.applied(1, [resident(variant(1, path), points)], [spec], [path])
    for id in range(1, 61):
        grant(gateway, (id, SHORT))
        assert isinstance((await gateway.answer(id))[0], Results)
    report = await executor.node.next(StatsReport, lambda m: any(v.drift for v in m.stats.variants))
    return report.stats.variants[0].drift


def typical(points: tuple[ProfilePoint, ...], part: float = 1.0) -> tuple[ProfilePoint, ...]:
    """Make a profile by another one's medians of single rows, which other work leaves alone."""
    return profile(of_class(points, 0)[0].p50_s, of_class(points, SHORT)[0].p50_s * part)


@pytest.mark.parametrize(("part", "least"), [(1.0, 0.1), (1 / 20, 2.0)])
async def test_short_queries_are_drift_where_they_take_longer_than_short_ones_did(executor, path, part, least):
    spec = sized(SHORT, LONG)
    done = await measured(executor, spec, path)
    assert await drift(executor, spec, path, typical(done.points, part)) > least


async def test_a_granted_batch_of_short_queries_is_not_late_by_the_time_of_long_ones(executor, path):
    spec = sized(SHORT, LONG)
    gateway = await executor.applied(1, [resident(variant(1, path), profile(150.0, 0.002))], [spec], [path])
    grant(gateway, (1, SHORT), (2, SHORT))
    assert isinstance((await gateway.answer(1))[0], Results)
    assert isinstance((await gateway.answer(2))[0], Results)
    grant(gateway, (3, LONG))
    message, _ = await gateway.answer(3)
    assert isinstance(message, Refusal) and message.code == "late", message


def grant(peer, *queries: tuple[int, int], budget_s: float = 60.0) -> None:
    parts = [(id, encode("x", sequence(length)["x"])) for id, length in queries]
    shapes = tuple(RequestShape(1, (header,)) for _, (header, _) in parts)
    given = tuple((id, place, budget_s) for place, (id, _) in enumerate(parts))
    peer.connection.send(RunBatch(1, "app", 1, 8, shapes, given), [data for _, (_, data) in parts])
