"""Processes of a running appliance that hang: the supervisor replaces them or leaves them alone."""

from __future__ import annotations

import os
import signal

import httpx2
import pytest

from appliance.local import probes
from tests.running import eventually, v2_request

pytestmark = pytest.mark.wide


def answers(appliance) -> bool:
    try:
        with appliance.inference() as client:
            return client.post("/v2/models/tiny/infer", json=v2_request()).status_code == 200
    except httpx2.TransportError:
        return False


def shown(appliance) -> bool:
    try:
        return httpx2.get(appliance.console + "/health/live", timeout=60).status_code == 200
    except httpx2.TransportError:
        return False


def reason(appliance, service: str) -> str:
    return next(line["reason"] for line in reversed(appliance.events("service_failed")) if line["service"] == service)


@pytest.mark.parametrize("service", ["gateway", "node", "web", "planning"])
def test_a_process_that_hangs_is_replaced_and_queries_are_answered(appliance, service):
    others = {name: appliance.pid(name) for name in ("gateway", "node", "web", "redis") if name != service}
    victim = appliance.pid(service)
    os.kill(victim, signal.SIGSTOP)
    eventually(lambda: appliance.pid(service) != victim, why=f"{service} is replaced")
    assert "hangs" in reason(appliance, service)
    eventually(lambda: answers(appliance), why="queries are answered")
    eventually(lambda: shown(appliance), why="the console answers")
    assert {name: appliance.pid(name) for name in others} == others, "nothing else was restarted"


async def test_a_gateway_answers_the_supervisor_at_its_own_socket(appliance):
    probe = probes.gateway(appliance.home / "run" / "gateway-1.sock")
    assert await probes.ask(probe, 60) is None
    missing = probes.gateway(appliance.home / "run" / "gateway-9.sock")
    assert "No such file" in await probes.ask(missing, 60)


async def test_the_console_is_alive_though_it_is_not_ready(appliance):
    live, health = (probes.http(appliance.console + path) for path in ("/health/live", "/health/"))
    assert await probes.ask(live, 60) is None
    assert await probes.ask(health, 60) is None
    assert "HTTP 404" in await probes.ask(probes.http(appliance.console + "/none"), 60)


def test_celery_shows_that_it_works(appliance):
    files = [appliance.home / "run" / f"{service}.heartbeat" for service in ("celery", "planning", "simulation")]
    eventually(lambda: all(file.exists() for file in files), why="a heartbeat of each")
    first = [file.stat().st_mtime_ns for file in files]
    again = lambda: all(file.stat().st_mtime_ns != at for file, at in zip(files, first, strict=True))  # noqa: E731
    eventually(again, why="another one of each")


def test_the_control_plane_stands_behind_serving(appliance):
    nice = {
        service: os.getpriority(os.PRIO_PROCESS, appliance.pid(service))
        for service in ("gateway", "node", "redis", "web", "celery", "planning")
    }
    assert nice["gateway"] == nice["node"] == nice["redis"]
    for service in ("web", "celery", "planning"):
        assert nice[service] > nice["gateway"]
        assert os.sched_getscheduler(appliance.pid(service)) == os.SCHED_BATCH
