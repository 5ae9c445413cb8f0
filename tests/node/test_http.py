"""The node daemon's health and metrics over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import struct
from contextlib import asynccontextmanager

import httpx2
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.node.conftest import running
from workers.addresses import Address
from workers.gateway.admin_socket import AdminSocket
from workers.node import http, metrics
from workers.protocol import control


@asynccontextmanager
async def served(settings):
    async with running(settings) as daemon:
        task = asyncio.create_task(http.serve(daemon, http.listen(settings.node_http)))
        try:
            async with httpx2.AsyncClient(base_url=settings.node_http.url, trust_env=False, timeout=60) as client:
                yield daemon, client
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_health_tells_of_devices_and_link(settings, control_plane):
    async with served(settings) as (daemon, client):
        await control_plane.until(lambda: daemon.link.up and daemon.states()[0].state == "up")
        health = (await client.get("/health")).json()
        assert (health["status"], health["node"], health["link"]["up"]) == ("ok", "box", True)
        (device,) = health["devices"]
        pid = daemon.executors["box/cpu0"].pid
        assert (device["device"], device["state"], device["pid"]) == ("box/cpu0", "up", pid)
        await control_plane.stop()
        await control_plane.until(lambda: not daemon.link.up)
        health = (await client.get("/health")).json()
        assert (health["status"], health["link"]["up"]) == ("ok", False)
        os.kill(device["pid"], signal.SIGKILL)
        await control_plane.until(lambda: daemon.states()[0].state != "up")
        assert (await client.get("/health")).json()["status"] == "degraded"


async def test_a_client_that_leaves_between_two_requests_is_forgotten(settings, control_plane):
    errors: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with served(settings) as (_, client):
        with socket.create_connection((settings.node_http.host, settings.node_http.port)) as left:
            left.sendall(2 * b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            # Closed with a reset, which is noticed where the first response is written.
            left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert (await client.get("/health")).status_code == 200
    assert not errors


async def test_metrics_are_the_daemons_and_its_executors(settings, control_plane):
    async with served(settings) as (daemon, client):
        await control_plane.receive(control.DeviceStates, lambda m: m.devices[0].state == "up")
        pages = await asyncio.gather(*(client.get("/metrics") for _ in range(4)))
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(pages[-1].text)
            for sample in family.samples
        }
        pid = daemon.executors["box/cpu0"].pid
        assert {page.status_code for page in pages} == {200}
        assert samples["nereus_batches_total", ("device", "box/cpu0"), ("variant", "a")] == pid
        assert samples["nereus_node_executor_up", ("device", "box/cpu0")] == 1
        assert samples["nereus_node_link_up",] == 1


async def test_figures_are_not_for_strangers(settings, control_plane):
    async with served(settings) as (daemon, client):
        await control_plane.until(lambda: daemon.link.up and daemon.states()[0].state == "up")
        stranger = {"Host": "evil.example"}
        assert (await client.get("/health", headers=stranger)).json() == {"status": "ok"}
        refused = await client.get("/metrics", headers=stranger)
        assert refused.status_code == 403 and "NEREUS_METRICS_FROM" in refused.json()["detail"]


async def test_metrics_do_without_an_executor_that_hangs(settings, control_plane):
    async with served(settings) as (daemon, client):
        await control_plane.until(lambda: daemon.executors["box/cpu0"].up)
        pid = daemon.executors["box/cpu0"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            page = await client.get("/metrics")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert page.status_code == 200
        assert "nereus_batches_total" not in page.text
        assert "nereus_node_link_up" in page.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/../x", 404), ("POST", "/health", 405), ("HEAD", "/health", 200)],
)
async def test_other_requests_get_a_clear_answer(settings, method, path, status):
    async with served(settings) as (_, client):
        answer = await client.request(method, path)
        assert answer.status_code == status
        if status != 200:
            assert answer.json()["status"] == status and answer.json()["detail"]


def test_a_taken_address_names_the_variable(settings):
    with http.listen(settings.node_http), pytest.raises(OSError, match=r"NEREUS_NODE_HTTP=127\.0\.0\.1:"):
        http.listen(settings.node_http)
    with pytest.raises(OSError, match=r"NEREUS_NODE_HTTP=192\.0\.2\.1:9"):
        http.listen(Address("192.0.2.1", 9))


def test_pages_become_one_with_each_family_described_once():
    page = (
        "# HELP rows_total Rows.\n# TYPE rows_total counter\nrows_total {n}\n"
        '# HELP wait_s Wait.\n# TYPE wait_s histogram\nwait_s_bucket{{le="1.0"}} {n}\n'
        'wait_s_bucket{{le="+Inf"}} {n}\nwait_s_count {n}\nwait_s_sum 0.5\n'
    )
    whole = metrics.Page("# HELP up Up.\n# TYPE up gauge\nup 1.0\n")
    for number, device in enumerate(("a", 'b"\n'), 1):
        whole.add(page.format(n=number), {"device": device})
    text = generate_latest(whole).decode()
    assert text.count("# TYPE rows_total counter") == 1
    assert text.count("# HELP wait_s Wait.") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert [(s.labels, s.value) for s in families["up"].samples] == [({}, 1.0)]
    assert [(s.labels["device"], s.value) for s in families["rows"].samples] == [("a", 1.0), ('b"\n', 2.0)]
    assert len(families["wait_s"].samples) == 8


async def test_the_pages_of_several_gateways_are_there_and_one_that_is_nonsense_is_not(settings, control_plane):
    settings = dataclasses.replace(settings, gateways=3)
    settings.make_folders()
    good = b"# HELP made_total things\n# TYPE made_total counter\nmade_total 3.0\n"
    sockets = [
        AdminSocket(settings.gateway_socket(number), lambda page=page: page)
        for number, page in ((1, good), (2, b"no { page"))
    ]
    for one in sockets:
        await one.start()
    try:
        async with served(settings) as (_, client):
            page = await client.get("/metrics")
    finally:
        for one in sockets:
            await one.close()
    assert page.status_code == 200
    families = {family.name: family for family in text_string_to_metric_families(page.text)}
    assert [(s.labels, s.value) for s in families["made"].samples] == [({"gateway": "box-gateway"}, 3.0)]
    up = {s.labels["gateway"]: s.value for s in families["nereus_node_gateway_up"].samples}
    assert up == {"box-gateway": 1, "box-gateway-2": 0, "box-gateway-3": 0}
