"""Held queries when devices decline, hang, cannot be sent to, or were slow."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Callable

import pytest

from tools.waiting import eventually_async
from workers.dispatch.binding import QueryClass
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption
from workers.gateway import binding_driver
from workers.gateway.binding_driver import BindingDriver
from workers.gateway.in_flight import InFlightQuery
from workers.gateway.metrics import GatewayMetrics
from workers.protocol.frames import ExecutorState, RequestShape
from workers.v2.query import Terms, V2Query

from .conftest import application, wait_for
from .test_failures import BODY, PATH, X, start


async def test_queries_go_in_batches_of_the_size_that_was_profiled(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0, batch=4, row_s=0.8)
    only.tell(delay_s=0.8)
    assert {answer.status_code for answer in await gateway.together(*[BODY] * 16)} == {200}
    sizes = [event["queries"] for event in only.said("grant")]
    assert sum(sizes) == 16 and max(sizes) == 4
    assert {event["max_rows"] for event in only.reported("grant")} == {4}


async def test_one_client_that_goes_while_its_query_is_held_is_forgotten(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(delay_s=3.0)
    async with gateway.client() as http:
        queries = []

        def known() -> int:
            return gateway.health()["in_flight"] + sum(query.done() for query in queries)

        # One after the other, so that the last one is held: at most two are at the device.
        for count in range(1, 7):
            queries.append(asyncio.create_task(http.post(PATH, content=BODY)))
            await asyncio.to_thread(wait_for, lambda count=count: known() >= count, "it is known")
        held = await asyncio.to_thread(wait_for, lambda: gateway.health()["held"], "some are held")
        queries[5].cancel()
        await asyncio.to_thread(wait_for, lambda: gateway.health()["held"] < held, "one is forgotten")
        only.tell(delay_s=0.05)
        assert {answer.status_code for answer in await asyncio.gather(*queries[:5])} == {200}
    wait_for(lambda: sum(event["queries"] for event in only.reported("grant")) == 5, "all others went")
    assert not only.said("cancel")


async def test_a_device_that_says_nothing_gets_nothing_more(gateways, devices):
    gateway, first, _ = start(gateways, devices, slo_s=3.0)
    first.tell(mute=True)
    statuses = collections.Counter(answer.status_code for answer in await gateway.together(*[BODY] * 12))
    # 503: late on a busy machine.
    assert set(statuses) <= {200, 503, 504}
    lost = len(first.said("grant"))
    assert lost and statuses[504] <= lost

    def dropped() -> bool:
        return any("silent for" in line for line in gateway.log)

    # Nothing is tried there while it stays silent, and later it is dropped.
    more = {answer.status_code for answer in await gateway.together(*[BODY] * 8)}
    if not dropped():
        assert more <= {200, 503}
        assert len(first.said("grant")) == lost
    wait_for(dropped, "the silent device is dropped")
    first.tell(mute=False)
    wait_for(lambda: gateway.health()["devices"]["d0"]["connected"], "it is back")
    wait_for(lambda: {gateway.infer(X).status_code for _ in range(3)} == {200}, "it serves")


async def test_a_device_that_was_slow_for_a_while_can_show_that_it_is_not_any_more(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=0.6, row_s=0.24)
    only.tell(delay_s=0.57)
    # It is soon expected to be too slow for the SLO, but probed while it is idle.
    wait_for(lambda: gateway.infer(X) and len(only.reported("grant")) >= 10, "ten slow answers")
    only.tell(delay_s=0.0)
    # A busy machine may make some of them late; not sixty in a row again and again.
    wait_for(lambda: all(gateway.infer(X).status_code == 200 for _ in range(60)), "sixty are served in a row")


# --- the holder by itself ---------------------------------------------------------------------------------------------


class HandlerStub:
    """Takes decisions and keeps them; ``able`` says whether it can send."""

    def __init__(self) -> None:
        self.dispatched: list[tuple[str, list[InFlightQuery]]] = []
        self.ended: list[InFlightQuery] = []
        self.able = True
        self.then = lambda flight: None

    def dispatch(self, batch, now: float) -> bool:
        if self.able:
            self.dispatched.append((batch.device.name, list(batch.queries)))
        return self.able

    def refused_by_binding(self, flight: InFlightQuery) -> None:
        self.ended.append(flight)
        self.then(flight)

    def usable(self, device: str) -> bool:
        return self.able


class Held:
    """A driver, its handler, and a device that takes ``run_s`` for ``most`` rows."""

    def __init__(self, slo_s: float = 60.0, run_s: float = 0.01, most: int = 1):
        self.spec = application("numbers", slo_s)
        self.handler = HandlerStub()
        self.holding = BindingDriver(self.handler, GatewayMetrics())
        self.now = asyncio.get_running_loop().time()
        self.ids = itertools.count(1)
        self.holding.configure({"numbers": self.spec}, self.now)
        times = LatencyModel([(most, run_s)], interpolate=False)
        option = ServingOption(1, 100.0, times, most)
        self.holding.set_options({"d0": {QueryClass("numbers"): OptionSet([option])}}, self.now)
        self.holding.set_up("d0", True, self.now)

    def submit(self) -> InFlightQuery:
        query = V2Query("", Terms(RequestShape(1, ()), 1, (), 0), (), None)
        flight = InFlightQuery(next(self.ids), self.spec, query, None, self.now, lambda *outcome: None, None)
        self.holding.submit(flight)
        return flight

    async def until(self, true: Callable[[], bool]) -> None:
        await eventually_async(true)

    async def settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_device_that_cannot_be_sent_to_rests_and_is_tried_again(monkeypatch):
    # Longer than a busy machine takes for the next lines.
    monkeypatch.setattr(binding_driver, "RETRY_S", 2.0)
    held = Held()
    held.handler.able = False
    flight = held.submit()
    await held.settle()
    assert held.handler.ended == [flight]
    assert len(held.holding) == 0
    held.handler.able = True
    refused = held.submit()
    await held.settle()
    assert held.handler.ended == [flight, refused], "the device still rests"
    tries: list[InFlightQuery] = []

    async def dispatched() -> list:
        tries.append(held.submit())
        await held.settle()
        return held.handler.dispatched

    assert await eventually_async(dispatched) == [("d0", tries[-1:])]


async def test_what_is_booked_is_granted_when_its_time_comes():
    held = Held()
    flights = [held.submit() for _ in range(3)]
    await held.settle()
    assert held.handler.dispatched == [("d0", [flights[0]])]
    assert held.holding.held == flights[1:]
    held.holding.completed([flights[0]], held.now + 0.01, 1, 0.01)
    assert held.handler.dispatched[1:] == [("d0", [flights[1]])]


async def test_an_answer_that_brings_the_next_query_is_no_trouble():
    held = Held(slo_s=0.005)
    more: list[InFlightQuery] = []
    held.handler.then = lambda flight: more.append(held.submit()) if len(more) < 3 else None
    first = held.submit()
    for _ in range(4):
        await held.settle()
    assert held.handler.ended == [first, *more]
    assert len(more) == 3 and len(held.holding) == 0


async def test_a_batch_that_nobody_waits_for_keeps_its_device_until_it_should_end():
    held = Held()
    gone, waits = held.submit(), held.submit()
    await held.settle()
    held.holding.withdraw_dispatched(gone, held.now)
    assert held.handler.dispatched == [("d0", [gone])], "the device cannot stop what it runs"
    await held.until(lambda: len(held.handler.dispatched) > 1)
    assert held.handler.dispatched[1:] == [("d0", [waits])]


async def test_the_last_one_of_a_batch_that_has_run_keeps_nothing_from_the_next():
    held = Held(slo_s=600.0, run_s=60.0, most=2)
    answered, gone, *wait = [held.submit() for _ in range(4)]
    await held.settle()
    assert held.handler.dispatched == [("d0", [answered, gone])]
    held.holding.completed([answered], held.now, 2, 0.01)
    held.holding.withdraw_dispatched(gone, held.now)
    assert held.handler.dispatched[1:] == [("d0", wait)]


@pytest.mark.parametrize("stack", ["nereus", "proteus"])
async def test_a_state_sent_while_a_batch_runs_does_not_hold_its_device_beyond_the_answer(stack):
    held = Held(slo_s=600.0, run_s=60.0)
    held.holding.use(stack, held.now)
    ended, waits = held.submit(), held.submit()
    await held.settle()
    assert held.handler.dispatched == [("d0", [ended])]
    held.holding.reported("d0", ExecutorState("d0", 1, (), False, {"numbers": 1}, 60.0), held.now)
    held.holding.completed([ended], held.now + 0.01, 1, 0.01)
    await held.until(lambda: len(held.handler.dispatched) > 1)
    assert held.handler.dispatched[1:] == [("d0", [waits])]
