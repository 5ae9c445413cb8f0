"""Each query gets exactly one answer while devices die, hang, decline and change."""

from __future__ import annotations

import asyncio
import collections
import json
import signal
import socket
import time

import pytest

from tools.waiting import eventually_async
from workers.dispatch.stacks import DEFAULT

from .conftest import AUTH, application, config, plan, wait_for

X = [[1.0, 2.0, 3.0, 4.0]]
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": X}]}).encode()
PATH = "/v2/models/numbers/infer"


def start(
    gateways,
    devices,
    names=("d0", "d1"),
    variant="big",
    slo_s=60.0,
    late="shed",
    stack=DEFAULT,
    batch=1,
    row_s=0.001,
    **settings,
):
    started = devices(*names)
    placed = {device.name: [("numbers", variant)] for device in started}
    for device in started:
        device.warm(("numbers", variant))
    endpoints = {device.name: device.endpoint for device in started}
    gateway = gateways(
        config(plan(1, placed, endpoints, stack, batch, row_s), [application("numbers", slo_s, late)]), **settings
    )
    gateway.wait_ready()
    wait_for(lambda: all(d["connected"] for d in gateway.health()["devices"].values()), "all devices are connected")
    return gateway, *started


async def load(gateway, seconds: float, clients: int = 8, meanwhile=None, least: int = 0) -> collections.Counter:
    """Keep up a steady load, and count its answers by (status, device, variant).

    Args:
        meanwhile: runs in the load's midst, to its end, and is given the answers so far.
        least: the load lasts until there are at least this many answers.
    """
    found: collections.Counter = collections.Counter()
    changed = asyncio.Event()
    end = time.monotonic() + seconds
    async with gateway.client() as http:

        async def client() -> None:
            while time.monotonic() < end or not changed.is_set() or sum(found.values()) < least:
                response = await http.post(PATH, content=BODY)
                body = response.json()
                if response.status_code == 200:
                    assert body["outputs"][0]["data"] == [2, 4, 6, 8]
                    found[200, body["parameters"]["device"], body["model_version"]] += 1
                else:
                    assert body["error"]
                    found[response.status_code, body["error"], ""] += 1

        async def other() -> None:
            if meanwhile is not None:
                await asyncio.sleep(seconds / 3)
                await meanwhile(found)
            changed.set()

        await asyncio.gather(other(), *(client() for _ in range(clients)))
    return found


async def test_a_killed_device_has_its_queries_answered_elsewhere(gateways, devices):
    gateway, first, second = start(gateways, devices, slo_s=60.0)
    for device in (first, second):
        device.tell(delay_s=0.02)

    async def kill(found) -> None:
        await eventually_async(lambda: any((device == "d0" for _, device, _ in found)))
        first.kill()

    found = await load(gateway, 1.2, meanwhile=kill, least=60)
    assert {status for status, *_ in found} == {200}
    assert {device for _, device, _ in found} == {"d0", "d1"}
    assert sum(found.values()) > 50
    # The device comes back, and so do its queries.
    first.start()
    first.warm(("numbers", "big"))
    wait_for(lambda: gateway.health()["devices"]["d0"]["warm"], "d0 is warm again")
    found = await load(gateway, 0.5, least=40)
    assert {device for _, device, _ in found} == {"d0", "d1"}


@pytest.mark.parametrize("stack", [DEFAULT, "infaas-accuracy"])
async def test_without_another_device_its_queries_get_a_clear_error(gateways, devices, stack):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0, stack=stack)
    only.tell(delay_s=30.0)
    async with gateway.client() as http:
        waiting = [asyncio.create_task(http.post(PATH, content=BODY)) for _ in range(5)]
        await asyncio.to_thread(wait_for, lambda: only.reported("grant"), "one is under way")
        only.kill()
        errors = []
        for one in waiting:
            response = await one
            assert response.status_code == 503
            errors.append(response.json()["error"])
            assert int(response.headers["Retry-After"]) >= 1
        assert any("d0: was lost with the query in flight" in error for error in errors)
        assert any("no device has a warm variant of it now" in error for error in errors)
        response = await http.post(PATH, content=BODY)
        assert response.status_code == 503
        assert "no device has a warm variant of it now" in response.json()["error"]
        assert int(response.headers["Retry-After"]) >= 1
    assert not gateway.ready() and gateway.health()["in_flight"] == 0
    assert gateway.http.get("/v2/health/ready").json()["error"] == "no warm variant yet of: numbers"


def test_a_device_that_hangs_is_given_up_at_the_deadline(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=1.0)
    only.tell(mute=True)
    response = gateway.infer(X)
    assert response.status_code == 504
    assert "device d0: no answer within" in response.json()["error"]
    assert response.headers["Retry-After"] == "1"
    # It may be given up as a whole before.
    wait_for(
        lambda: only.reported("cancel") or not gateway.health()["devices"]["d0"]["connected"], "the device is given up"
    )


@pytest.mark.parametrize("slo_s", [0.2, 1.5])
def test_a_stopped_process_does_not_stop_the_others(gateways, devices, slo_s):
    gateway, first, _ = start(gateways, devices, slo_s=slo_s)
    first.signal(signal.SIGSTOP)
    wait_for(lambda: gateway.infer(X).status_code == 504, "a query is given up there")

    def dropped():
        # Single time-outs may be shorter than what tells a hung device from a busy one.
        gateway.infer(X)
        return not gateway.health()["devices"]["d0"]["connected"]

    wait_for(dropped, "the silent device is dropped")

    def served():
        # On a busy machine some may be late all the same; but none for the device that is gone.
        answers = [gateway.infer(X) for _ in range(6)]
        assert not [answer for answer in answers if "d0" in answer.text]
        return [answer.status_code for answer in answers] == [200] * 6

    wait_for(served, "all are served")


def test_a_query_declined_for_now_goes_to_another_device(gateways, devices):
    gateway, first, second = start(gateways, devices)
    first.tell(refuse=["overloaded", True])
    answers = [gateway.infer(X) for _ in range(10)]
    assert [a.status_code for a in answers] == [200] * 10
    assert {a.json()["parameters"]["device"] for a in answers} == {"d1"}
    assert first.said("query")
    second.tell(refuse=["late", True])
    response = gateway.infer(X, latency_ms=2000)
    assert response.status_code == 503
    assert "told to say" in response.json()["error"]
    assert response.headers["Retry-After"] == "1"


def test_a_model_that_raises_is_reported_at_once(gateways, devices):
    gateway, *both = start(gateways, devices)
    for device in both:
        device.tell(refuse=["failed", False])
    response = gateway.infer(X)
    assert response.status_code == 500
    assert "told to say failed" in response.json()["error"]
    assert sum(len(device.said("query")) for device in both) == 1


def test_a_draining_device_gets_nothing_new(gateways, devices):
    gateway, first, _ = start(gateways, devices)
    first.tell(draining=True)
    wait_for(lambda: gateway.health()["devices"]["d0"]["draining"], "the gateway knows")
    assert {gateway.infer(X).json()["parameters"]["device"] for _ in range(6)} == {"d1"}


async def test_the_only_device_is_asked_even_while_it_drains(gateways, devices):
    # It may ask for no new queries for a first run, say. Queries that are held or that come must not be lost for it.
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(delay_s=2.0)
    async with gateway.client() as http:
        waiting = [asyncio.create_task(http.post(PATH, content=BODY)) for _ in range(6)]

        def under_way() -> int:
            # On a busy machine some may be answered by now.
            return gateway.health()["in_flight"] + sum(one.done() for one in waiting)

        await asyncio.to_thread(wait_for, lambda: under_way() == 6, "they are under way")
        only.tell(draining=True, delay_s=0.05)
        waiting += [asyncio.create_task(http.post(PATH, content=BODY)) for _ in range(3)]
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 9
    only.tell(refuse=["draining", True])
    before = len(only.said("grant"))
    # It is asked again until the query's time is over.
    response = gateway.infer(X, latency_ms=2_000)
    assert response.status_code == 503
    assert "told to say draining" in response.json()["error"]
    assert len(only.said("grant")) > before + 1


def test_a_client_that_goes_away_has_its_query_cancelled(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(delay_s=50.0)
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: %s\r\ncontent-length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as connection:
        connection.sendall(head % (PATH.encode(), AUTH["Authorization"].encode(), len(BODY)) + BODY)
        wait_for(lambda: only.reported("query"), "the query is under way")
    wait_for(lambda: only.reported("cancel"), "the device is notified")
    wait_for(lambda: gateway.health()["in_flight"] == 0, "nothing stays behind")
    assert 'outcome="cancelled"} 1.0' in gateway.http.get("/metrics").text


def test_the_budget_is_the_slo_or_the_tighter_one_asked_for(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=600.0)
    gateway.infer(X)
    gateway.infer(X, latency_ms=200_000)
    gateway.infer(X, latency_ms=3_000_000)
    slo, tighter, looser = [e["budget_s"] for e in only.said("query")]
    # Less the time that the way there took and the way back may take.
    assert 300.0 < slo < 600.0
    assert 100.0 < tighter < 200.0
    assert 300.0 < looser < 600.0


def test_late_answers_are_served_where_the_application_wants_them(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=1.0, late="serve")
    only.tell(delay_s=1.5)
    assert gateway.infer(X).status_code == 200
    assert 'outcome="late"} 1.0' in gateway.http.get("/metrics").text


async def test_too_much_at_once_is_refused_with_a_time_to_try_again(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0, NEREUS_QUEUE_ROWS="4")
    only.tell(delay_s=1.0)
    answers = await gateway.together(*[BODY] * 30)
    refused = [a for a in answers if a.status_code != 200]
    assert len(answers) - len(refused) >= 8
    assert refused
    for answer in refused:
        assert answer.status_code == 503
        assert "gateway: 8 rows are in flight, the most at once" in answer.json()["error"]
        assert int(answer.headers["Retry-After"]) >= 1


async def test_a_device_that_was_silent_gets_batches_again_once_it_answers(gateways, devices):
    # Late answers are served, so that no answer depends on the machine.
    gateway, only = start(gateways, devices, ["d0"], slo_s=0.05, late="serve")
    only.signal(signal.SIGSTOP)
    async with gateway.client() as http:
        first = asyncio.create_task(http.post(PATH, content=BODY))
        # Longer than a query is waited for before its device gets no more batches, and less than a stuck device gets.
        await asyncio.sleep(1.0)
        only.signal(signal.SIGCONT)
        assert (await first).status_code == 200
        assert (await http.post(PATH, content=BODY)).status_code == 200
