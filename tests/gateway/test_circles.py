"""Objects of a query are freed with their last reference."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref

from workers.dispatch.binding import QueryClass
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption
from workers.gateway.bursts import BurstDetector
from workers.gateway.catalog import Catalog
from workers.gateway.core import Core
from workers.gateway.errors import GatewayError
from workers.gateway.executors import Executors
from workers.gateway.metrics import GatewayMetrics
from workers.protocol.control import GatewayConfig
from workers.protocol.frames import Results, ResultTensor
from workers.protocol.specs import PlanSpec

from .conftest import application, new_front, row_query


class Device(Executors):
    def __init__(self) -> None:
        super().__init__("gateway", None)
        self.grants = []

    def send_batches(self, device, messages) -> bool:
        self.grants += [message for message, _ in messages]
        return True


async def test_answered_refused_and_cancelled_queries_leave_no_circles():
    devices = Device()
    core, front = Core(devices, BurstDetector(), GatewayMetrics()), new_front()
    front.core = core
    spec = application("numbers", 60.0)
    now = asyncio.get_running_loop().time()
    core.configure(Catalog(GatewayConfig(applications=(spec,), key_hashes=(), plan=PlanSpec(version=1))), now)
    option = ServingOption(1, 100.0, LatencyModel([(1, 0.01)]), 1)
    core.set_options({"d0": {QueryClass("numbers"): OptionSet([option])}}, now)
    core._driver.set_up("d0", True, now)
    bodies = weakref.WeakSet()
    ended: list[type] = []
    ids = itertools.count()

    def ask(latency_s: float):
        body = memoryview(b"x" * 16)
        bodies.add(body)
        query = row_query(str(next(ids)), latency_s, body)
        return front.submit(spec, query, None, now, lambda flight, outcome: ended.append(type(outcome)))

    gc.collect()
    gc.disable()
    try:
        flights = [ask(60.0), ask(60.0), ask(0.001)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert issubclass(ended[0], GatewayError)
        (grant,) = devices.grants
        core.results(
            "d0",
            Results(
                1, (grant.queries[0][0],), "v", 90.0, 95.0, 0.0, 0.01, 1, 0.01, (ResultTensor("y", "FP32", (1, 4), 16),)
            ),
            memoryview(bytes(16)),
        )
        front.withdraw(flights[1])
        assert len(ended) == 2 and front.accounts.queries == 0
        flights.clear()
        devices.grants.clear()
        del grant
        await asyncio.sleep(0)
        assert not bodies
    finally:
        gc.enable()
