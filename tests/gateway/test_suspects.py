"""Queries that were under way when a device crashed."""

from __future__ import annotations

import asyncio
import json
import signal

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.test_failures import BODY, PATH, start
from workers.gateway.errors import GatewayError, ModelFailed
from workers.gateway.in_flight import InFlightQuery
from workers.gateway.suspects import MOST_INPUTS, REMEMBERED_S, Suspects
from workers.v2.http import parse as parse_http

from .conftest import application, config, plan, wait_for

POISON = [[666.0, 2.0, 3.0, 4.0]]
GOOD = [[1.0, 2.0, 3.0, 4.0]]


def body(x) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": x}]}).encode()


def poisoned(gateways, devices, count: int, command: str = "crash_on", **more):
    gateway, *all = start(gateways, devices, tuple(f"d{i}" for i in range(count)), slo_s=60.0, **more)
    for device in all:
        device.tell(**{command: 666.0})
    return gateway, all


def crashed(devices) -> int:
    return sum(device.crashed for device in devices)


def not_tried_again(gateway, devices) -> None:
    before = sum(len(device.said("grant")) for device in devices if not device.crashed)
    assert gateway.infer(POISON).status_code == 500
    assert sum(len(device.said("grant")) for device in devices if not device.crashed) == before


@pytest.mark.parametrize("count", [2, 4])
async def test_a_poisonous_query_crashes_two_devices_and_is_answered_500(gateways, devices, count):
    gateway, all = poisoned(gateways, devices, count)
    answer = gateway.infer(POISON)
    assert answer.status_code == 500
    assert "crashed with this query alone (killed by SIGSEGV); it is not tried again" in answer.json()["error"]
    assert "Retry-After" not in answer.headers
    assert crashed(all) == 2
    # Once more it does no further harm.
    answer = gateway.infer(POISON)
    assert answer.status_code == 500
    assert "this input crashed a device or never ended; it is refused for another" in answer.json()["error"]
    assert crashed(all) == 2
    assert gateway.infer(GOOD).status_code == (200 if count > 2 else 503)
    assert gateway.health()["in_flight"] == 0


@pytest.mark.parametrize("command", ["crash_on", "stop_on"])
async def test_those_in_its_batch_are_answered_by_others(gateways, devices, command):
    gateway, all = poisoned(gateways, devices, 3, command, batch=8, row_s=0.5)
    for device in all:
        device.tell(delay_s=0.3)
    # More than one batch for each device, so that innocent queries share the poison's.
    innocent = [body([[float(i), 2.0, 3.0, 4.0]]) for i in range(23)]
    answers = await gateway.together(body(POISON), *innocent)
    assert answers[0].status_code == 500
    assert [answer.status_code for answer in answers[1:]] == [200] * 23
    assert [answer.json()["outputs"][0]["data"][0] for answer in answers[1:]] == [2.0 * i for i in range(23)]
    assert crashed(all) == (2 if command == "crash_on" else 0)
    assert gateway.health()["in_flight"] == 0
    not_tried_again(gateway, all)


async def test_a_device_that_was_killed_is_no_crash(gateways, devices):
    # There are two devices: the queries of the killed one go to the application's last, and nothing is refused.
    gateway, (first, second) = poisoned(gateways, devices, 2, batch=4, row_s=0.01)
    # Nothing is answered by the first before it is killed.
    first.tell(delay_s=60.0)
    second.tell(delay_s=0.3)
    async with gateway.client() as http:
        waiting = [asyncio.create_task(http.post(PATH, content=BODY)) for _ in range(12)]
        await asyncio.to_thread(
            wait_for, lambda: first.reported("grant") and second.reported("grant"), "both are at work"
        )
        first.kill()
        answers = await asyncio.gather(*waiting)
    assert [answer.status_code for answer in answers] == [200] * 12
    assert {answer.json()["parameters"]["device"] for answer in answers} == {"d1"}
    assert gateway.infer(GOOD).status_code == 200


async def test_an_unexplained_loss_is_no_crash(gateways, devices):
    gateway, (first, second) = poisoned(gateways, devices, 2)
    for device in (first, second):
        device.supervised = False
        device.tell(supervised=False)
    assert gateway.infer(POISON).status_code == 503
    # Once more on the other device, and no further.
    wait_for(lambda: crashed([first, second]) == 2, "both have crashed")


async def test_a_stopped_run_of_a_query_alone_is_not_tried_again(gateways, devices):
    gateway, all = poisoned(gateways, devices, 3, "stop_on", batch=8, row_s=0.5)
    answer = gateway.infer(POISON)
    assert answer.status_code == 500
    assert "big: the run did not end in time; it is not tried again" in answer.text
    assert "Retry-After" not in answer.headers
    not_tried_again(gateway, all)
    assert gateway.health()["in_flight"] == 0


async def test_a_client_that_has_gone_leaves_its_input_known(gateways, devices):
    gateway, all = poisoned(gateways, devices, 3)
    for device in all:
        device.tell(delay_s=6.0)
    async with gateway.client() as http:
        query = asyncio.create_task(http.post(PATH, content=body(POISON)))
        await asyncio.to_thread(wait_for, lambda: any(d.reported("grant") for d in all), "it is at a device")
        query.cancel()
    # The call under way keeps its delay.
    for device in all:
        device.tell(delay_s=0.0)
    wait_for(lambda: crashed(all) == 1, "the device has crashed")
    # The next one of its kind is a suspect from the start, and is not tried a third time.
    wait_for(lambda: gateway.health()["suspect_inputs"] == 1, "its input is known")
    assert gateway.infer(POISON).status_code == 500
    assert gateway.infer(POISON).status_code == 500
    assert crashed(all) == 2


async def test_copies_of_a_poisonous_query_do_no_more_harm_than_one(gateways, devices):
    gateway, all = poisoned(gateways, devices, 5, batch=8, row_s=0.5)
    for device in all:
        device.tell(delay_s=0.3)
    # The first one goes alone; the others share a batch behind it, or are held.
    answers = await gateway.together(*[body(POISON)] * 12)
    assert {answer.status_code for answer in answers} <= {500, 503}
    assert crashed(all) < 5
    assert gateway.infer(GOOD).status_code == 200
    assert gateway.health()["in_flight"] == 0


def two_applications(gateways, devices, count: int):
    all = devices(*(f"d{i}" for i in range(count)))
    both = [("numbers", "big"), ("nan", "only")]
    for device in all:
        device.warm(*both)
    placed, endpoints = {d.name: both for d in all}, {d.name: d.endpoint for d in all}
    specs = [application("numbers", 60.0), application("nan", 60.0)]
    gateway = gateways(config(plan(1, placed, endpoints, batch=8, row_s=0.5), specs))
    gateway.wait_ready()
    wait_for(lambda: all_warm(gateway), "all devices are known")
    return gateway, all


def all_warm(gateway) -> bool:
    return all(device["connected"] and device["warm"] for device in gateway.health()["devices"].values())


def post(http: httpx2.AsyncClient, name: str, x) -> asyncio.Task:
    return asyncio.create_task(http.post(f"/v2/models/{name}/infer", content=body(x)))


async def test_nobody_is_tried_where_another_query_may_be_the_cause(gateways, devices):
    gateway, all = two_applications(gateways, devices, 3)
    for device in all:
        device.tell(crash_on=666.0, delay_s=6.0)

    def at_work() -> list:
        return [device for device in all if device.reported("grant")]

    async with gateway.client() as http:
        bad = post(http, "nan", POISON)
        await asyncio.to_thread(wait_for, at_work, "the poison is at a device")
        other = post(http, "nan", GOOD)
        await asyncio.to_thread(wait_for, lambda: len(at_work()) == 2, "another one is, too")
        (third,) = [device for device in all if device not in at_work()]
        innocent = [post(http, "numbers", [[float(i), 0.0, 0.0, 0.0]]) for i in range(2)]
        await asyncio.to_thread(wait_for, lambda: third.reported("grant"), "the third is at work")
        # Calls under way keep their delay.
        for device in all:
            device.tell(delay_s=0.0)
        third.signal(signal.SIGSEGV)
        answers = await asyncio.gather(*innocent)
        assert 500 not in [answer.status_code for answer in answers]
        assert (await bad).status_code in (500, 503)
        await other
    assert gateway.health()["in_flight"] == 0


async def test_a_suspect_whose_client_leaves_is_not_blamed_on_the_next(gateways, devices):
    gateway, all = poisoned(gateways, devices, 3, batch=8, row_s=0.5)
    for device in all:
        device.tell(delay_s=0.6)
    async with gateway.client() as http:
        bad = post(http, "numbers", POISON)
        innocent = [post(http, "numbers", [[float(i), 1.0, 1.0, 1.0]]) for i in range(23)]
        await asyncio.to_thread(wait_for, lambda: crashed(all) == 1, "the first has crashed")
        await asyncio.to_thread(wait_for, lambda: gateway.health()["suspect_inputs"], "there are suspects")
        bad.cancel()
        answers = await asyncio.gather(*innocent)
    assert 500 not in [answer.status_code for answer in answers]
    assert crashed(all) <= 2
    wait_for(lambda: gateway.health()["in_flight"] == 0, "nothing stays behind")
    assert gateway.infer(GOOD).status_code == 200


# --- the account, without anything else ------------------------------------------------------------------------------


class _Account:
    def __init__(self) -> None:
        self.held: list[InFlightQuery] = []
        self.outcomes: dict[int, GatewayError] = {}
        self.suspects = Suspects(self)
        self._spec = application("numbers")
        self._ids = iter(range(1, 10**9))

    # --- as driver and front ---

    def submit(self, flight: InFlightQuery) -> None:
        self.held.append(flight)

    def withdraw(self, flight: InFlightQuery, now: float) -> None:
        self.held.remove(flight)

    def finish(self, flight: InFlightQuery, error: GatewayError) -> None:
        flight.answer = None
        self.outcomes[flight.id] = error

    def flight(self, value: float = 1.0, client: str = "key") -> InFlightQuery:
        query = parse_http(body([[value, 2.0, 3.0, 4.0]]), None, self._spec.signature, 64)
        flight = InFlightQuery(next(self._ids), self._spec, query, None, 0.0, lambda flight, outcome: None, None)
        flight.client, flight.front = client, self
        return flight

    def crash(self, flight: InFlightQuery, now: float) -> None:
        if flight in self.held:
            self.held.remove(flight)
        self.suspects.crashed("d0", "killed by SIGSEGV", [flight], [], now)

    def confirmed(self, value: float, now: float = 0.0, client: str = "key") -> None:
        flight = self.flight(value, client)
        self.suspects.stopped(flight, "it did not end", True, now)
        assert isinstance(self.outcomes[flight.id], ModelFailed)


def test_nothing_is_judged_while_nothing_is_remembered():
    account = _Account()
    assert not account.suspects.active
    assert account.suspects.judge(account.flight(), 0.0) is None


def test_what_was_seen_at_a_crash_is_suspect_and_what_crashed_alone_is_refused_for_minutes():
    account = _Account()
    account.suspects.suspect(account.flight(1.0), 0.0)
    account.confirmed(2.0)
    same, guilty, other = account.flight(1.0), account.flight(2.0), account.flight(3.0)
    assert account.suspects.judge(same, 1.0) is None and same.suspected
    assert isinstance(account.suspects.judge(guilty, 1.0), ModelFailed)
    assert account.suspects.judge(other, 1.0) is None and not other.suspected
    account.suspects.clear(same)
    fresh = account.flight(1.0)
    assert account.suspects.judge(fresh, 1.0) is None and not fresh.suspected
    account.suspects.sweep(REMEMBERED_S + 1.0)
    assert account.suspects.judge(account.flight(2.0), REMEMBERED_S + 1.0) is None


def test_what_is_remembered_is_bounded():
    account = _Account()
    for i in range(MOST_INPUTS + 10):
        account.suspects.suspect(account.flight(float(i)), 0.0)
    first, last = account.flight(0.0), account.flight(float(MOST_INPUTS + 9))
    account.suspects.judge(first, 1.0)
    account.suspects.judge(last, 1.0)
    assert not first.suspected and last.suspected


@given(st.lists(st.sampled_from(["crash", "again", "answer", "withdraw", "sweep"]), max_size=40))
def test_one_suspect_at_a_time_which_ends_once_it_crashed_alone(steps):
    account, now, asked, done = _Account(), 0.0, set(), set()
    suspects = account.suspects
    for i, step in enumerate(steps):
        now += 1.0
        if step == "crash":
            flight = account.flight(float(i), client=str(i))
            asked.add(flight.id)
            account.crash(flight, now)
        elif step == "again" and account.held:
            flight = account.held[0]
            if flight.tried_alone:
                done.add(flight.id)
            account.crash(flight, now)
            assert (flight.id in account.outcomes) == (flight.id in done)
        elif step == "answer" and account.held:
            flight = account.held.pop()
            flight.answer = None
            done.add(flight.id)
            suspects.clear(flight)
        elif step == "withdraw" and suspects.waiting:
            flight = suspects.waiting[-1]
            suspects.withdraw(flight)
            done.add(flight.id)
        elif step == "sweep":
            suspects.sweep(now)
        suspects.try_next(now)
        assert sum(flight.tried_alone for flight in account.held) <= 1
        waiting = {flight.id for flight in (*suspects.waiting, *account.held)}
        assert waiting.isdisjoint(done) and waiting | done == asked
