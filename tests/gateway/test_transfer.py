"""The time that tensors are on the way to another box."""

from __future__ import annotations

import asyncio
import random
import time

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.gateway.device_options import DeviceOptions
from workers.gateway.network import LARGE_BYTES, LEAST, MOST, STALE_S, STEP, TransferEstimator, row_bytes
from workers.protocol.frames import WarmVariant
from workers.protocol.specs import ApplicationSpec, Signature, TensorSpec

from .conftest import AUTH, config, fronts, plan

MIB = 1024 * 1024


@given(st.floats(1e-9, 1e-6), st.integers(0, 2**31))
def test_the_rate_is_learned_despite_stalls(byte_s, seed):
    draw, estimator = random.Random(seed), TransferEstimator()
    for number in range(200):
        nbytes = draw.randint(LARGE_BYTES, 4 * MIB)
        stall_s = 0.5 if number % 10 == 9 else 0.0
        estimator.add(nbytes, byte_s * nbytes * draw.uniform(0.9, 1.1) + stall_s, number)
    assert byte_s / 1.4 <= estimator.byte_s <= byte_s * 1.4


def test_the_first_large_batch_counts_at_once():
    estimator = TransferEstimator()
    assert estimator.byte_s == 0.0
    assert estimator.add(MIB, 0.01, 0.0) and estimator.byte_s == 0.01 / MIB


@given(st.lists(st.tuples(st.integers(LARGE_BYTES, 10**9), st.floats(-10, 1000), st.floats(0, 10)), max_size=100))
def test_an_estimate_is_bounded_and_changes_in_steps(batches):
    estimator, now = TransferEstimator(), 0.0
    for nbytes, on_the_way_s, pause_s in batches:
        now += pause_s
        before = estimator.byte_s
        changed = estimator.add(nbytes, on_the_way_s, now)
        assert estimator.byte_s == 0.0 or LEAST <= estimator.byte_s <= MOST
        assert changed == (estimator.byte_s != before)
        if changed and before and estimator.byte_s:
            ratio = estimator.byte_s / before
            assert ratio >= STEP or ratio <= 1 / STEP


def test_an_estimate_that_keeps_all_batches_away_fades():
    estimator = TransferEstimator()
    estimator.add(MIB, 1.0, 0.0)
    assert not estimator.stale(STALE_S - 1)
    now = STALE_S
    for _ in range(40):
        estimator.stale(now)
        now += STALE_S
    assert estimator.byte_s == 0.0
    assert not estimator.stale(now), "nothing is left to fade"
    assert estimator.add(MIB, 0.01, now), "the next batch counts at once"


def test_bytes_of_a_row_follow_its_size_class():
    tokens, image = TensorSpec("ids", "INT64", (-1, -1)), TensorSpec("image", "FP32", (-1, 3, -1, -1), most=10)
    text = TensorSpec("text", "BYTES", (-1, 1))
    spec = ApplicationSpec("a", 1.0, Signature((tokens, text), (tokens,)), sizes=(16, 128))
    assert [row_bytes(spec, size) for size in (16, 0)] == [2 * 8 * 16, 2 * 8 * 128]
    assert row_bytes(ApplicationSpec("a", 1.0, Signature((image,), ())), 0) == 4 * 3 * 10 * 10


def test_an_option_far_away_takes_longer_by_its_bytes():
    spec = ApplicationSpec("numbers", 0.3, Signature((TensorSpec("x", "FP32", (-1, 1000)),), ()))
    options = DeviceOptions()
    options.configure({"numbers": spec}, 64)
    options.plan(plan(1, {"d0": [("numbers", "big")]}, {"d0": "unix:/d0"}, batch=8, row_s=0.01))
    known = (WarmVariant(1, "big", "numbers", 95.0, True),)
    (near,), (far,) = (
        [one for offered in options.of("d0", known, byte_s).values() for one in offered.options]
        for byte_s in (0.0, 1e-6)
    )
    assert far.row_transfer_s == pytest.approx(0.004) and near.row_transfer_s == 0.0
    for rows in range(1, 9):
        assert far.seconds(rows) == pytest.approx(near.seconds(rows) + 0.004 * rows)
    assert options.of("d0", known, 1e-4) == {}, "not even one row is in time"
    assert options.of("d0", known) is options.of("d0", known)


WIDE = 40_000
NUMBERS = Signature(
    (TensorSpec("x", "FP32", (-1, WIDE)),), (TensorSpec("y", "FP32", (-1, WIDE)), TensorSpec("n", "INT64", (-1,)))
)


class SlowLink:
    def __init__(self, path: str, behind: str) -> None:
        self.path, self._behind = path, behind

    async def start(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connected, self.path)

    async def _connected(self, reader, writer) -> None:
        back, forth = await asyncio.open_unix_connection(self._behind)
        await asyncio.gather(self._pump(reader, forth), self._pump(back, writer), return_exceptions=True)

    @staticmethod
    async def _pump(reader, writer) -> None:
        try:
            while data := await reader.read(65536):
                await asyncio.sleep(0.02 * len(data) / 65536)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


async def test_a_core_learns_it_and_refuses_at_once_what_could_not_be_back_in_time(tmp_path, devices):
    (device,) = devices("d0")
    device.warm(("numbers", "big"))
    link = SlowLink(str(tmp_path / "link.sock"), device.endpoint.removeprefix("unix:"))
    planned = plan(1, {"d0": [("numbers", "big")]}, {"d0": f"unix:{link.path}"})
    made = config(planned, [ApplicationSpec("numbers", 60.0, NUMBERS)])

    async def asked(within_ms: float | None = None) -> int:
        parameters = {} if within_ms is None else {"latency_ms": within_ms}
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, WIDE], "data": [1.0] * WIDE}
        body = {"inputs": [tensor], "parameters": parameters}
        async with httpx2.AsyncClient(headers=AUTH, timeout=60) as http:
            answer = await http.post(f"http://127.0.0.1:{port}/v2/models/numbers/infer", json=body)
        return answer.status_code

    async with asyncio.timeout(60), await link.start(), fronts(tmp_path, made) as (gateway, port, _):
        network = gateway._here.rollout.core.network
        assert await asked() == 200
        assert network.byte_s("d0") == 0.0, "a device of the same box has no such estimate"
        # Only devices of other boxes are asked how far away they are.
        network.echoed("d0", 0.001, time.monotonic())
        assert await asked() == 200
        learned = network.byte_s("d0")
        assert learned > 1e-7, "64 KiB take 20 ms at least"
        await asyncio.sleep(0.3)
        before = len(device.said("query"))
        # 320,000 bytes on their way, of which the SLO's time would be enough for.
        assert await asked(within_ms=max(1.0, 0.5 * learned * 320_000 * 1e3)) in (429, 503)
        assert len(device.said("query")) == before, "it is not sent"
