"""Two homes with a web process and a planning worker each, on one PostgreSQL and one Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx2
import pytest

from scheduler.control.leases import TTL_S
from tests import postgresql
from tests.control.linked import TIMING, background, until
from tests.control.world import KIND
from tests.forked import of_commands
from tests.running import ROOT, RunningAppliance, eventually
from tools.waiting import eventually_async
from workers.link import MemberLink, Membership
from workers.protocol import control
from workers.protocol.specs import DeviceInfo, DeviceState
from workers.settings import Settings

pytestmark = [pytest.mark.wide, postgresql.needed]

FILL = """
from registry.models import JoinToken, hash_secret
from tests.control.world import application, variant
variant(application(), "quick", 90, 5)
JoinToken.objects.create(name="rack", token_hash=hash_secret("join-me"), auto_approve=True)
"""
INFO = DeviceInfo("box/cpu0", "cpu", KIND, "a core", (0,), None, 2**30, "unix:/box-cpu0")


class Home(RunningAppliance):
    """The processes of a control plane that are tested here, without a supervisor."""

    def __init__(self, folder: Path, name: str, **settings: str) -> None:
        super().__init__(folder / name, environment={"PYTHONPATH": str(ROOT), "NEREUS_NODE_NAME": name, **settings})
        self.processes: dict[str, subprocess.Popen] = {}

    def run(self, *arguments: str) -> None:
        done = of_commands().run("manage.py", *arguments, env=self.environment)
        assert done.returncode == 0, done.stderr[-3000:]

    def start_all(self) -> None:
        values = Settings.from_environ({k: v for k, v in self.environment.items() if k.startswith("NEREUS_")})
        worker = ["appliance.local.lean_celery", "-n", "one@nereus", "--loglevel", "info", "--pool", "solo"]
        commands = {
            "web": ["gunicorn", "-c", "python:appliance.local.web", "appliance.asgi:application"],
            "planning": [*worker, "-Q", f"planning,planning.{values.instance}"],
            "celery": [*worker, "-Q", f"control,control.{values.instance}"],
        }
        (self.home / "logs").mkdir(exist_ok=True)
        for name, command in commands.items():
            with (self.home / "logs" / "nereus.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", *command],
                    cwd=ROOT,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def stop_all(self) -> None:
        for process in self.processes.values():
            # With its workers; one of them is gone already.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def serves(self) -> bool:
        assert self.processes["web"].poll() is None, self.log()[-3000:]
        with suppress(httpx2.HTTPError):
            return httpx2.get(f"{self.console}/health/", timeout=30, trust_env=False).status_code == 200
        return False


@pytest.fixture
def homes(tmp_path, redis_server) -> Iterator[list[Home]]:
    from django.conf import settings

    shared = {
        "NEREUS_DATABASE_URL": postgresql.database(),
        "NEREUS_REDIS_URL": settings.REDIS_URL,
        "NEREUS_REDIS_PREFIX": "two-control-planes",
    }
    made = [Home(tmp_path, name, **shared) for name in ("left", "right")]
    for home in made:
        home.run("prepare")
    made[0].run("shell", "-v", "0", "-c", FILL)
    try:
        for home in made:
            home.start_all()
        for home in made:
            eventually(home.serves, why="a web process")
        yield made
    finally:
        for home in made:
            home.stop_all()


class Linked:
    def __init__(self, kind: str, name: str, folder: Path, url: str) -> None:
        self._kind = kind
        self.versions: list[int] = []
        join = {
            "node": lambda _: control.JoinNode(name=name, devices=(INFO,)),
            "gateway": lambda _: control.JoinGateway(name=name, address="http://front:8000"),
        }[kind]
        membership = Membership(kind, name, url, folder, "join-me")
        self.link = MemberLink(membership, join=join, on_message=self._receive, on_up=self._up, timing=TIMING)

    def _up(self) -> None:
        if self._kind == "node":
            self.link.send(control.DeviceStates(devices=(DeviceState(INFO.id, "up"),)))

    def _receive(self, message: control.ToMember) -> None:
        if isinstance(message, control.Configuration):
            self.held = message
            self.versions.append(message.plan.version)

    async def report(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.versions:
                state = {"plan_version": self.versions[-1], "config_hash": self.held.hash}
                if self._kind == "node":
                    self.link.send(control.NodeStats(devices=(), jobs=(), **state))
                else:
                    self.link.send(control.GatewayStats(applications={}, ready=True, **state))


async def test_members_of_either_web_process_hold_each_plan_whichever_worker_made_it(homes, tmp_path):
    left, right = homes
    node = Linked("node", "box", tmp_path / "node", left.console)
    gateway = Linked("gateway", "front", tmp_path / "gateway", right.console)
    async with AsyncExitStack() as stack:
        for member in (node, gateway):
            await stack.enter_async_context(background(member.link.run()))
            await stack.enter_async_context(background(member.report()))

        async def planned(home: Home) -> int:
            """A plan asked for at one of them, once both members hold it."""
            before = max((*node.versions, *gateway.versions, 0))

            def ask() -> None:
                with home.rest() as rest:
                    rest.post("/plan/").raise_for_status()

            def held() -> bool:
                return min(node.versions[-1], gateway.versions[-1]) > before

            async def ask_and_wait() -> bool:
                # Again and again, as the period does in an appliance: a worker that is killed may take a request
                # along, until others find that nobody took it up.
                await asyncio.to_thread(ask)
                end = time.monotonic() + TTL_S
                await eventually_async(lambda: not (not held() and time.monotonic() < end))
                return held()

            await until(ask_and_wait, "the plan at both", 240)
            return max(node.versions[-1], gateway.versions[-1])

        await until(lambda: node.versions and gateway.versions, "the members' first configurations", 240)
        await until(lambda: node.link.up and gateway.link.up, "both links", 240)
        assert await planned(left) < await planned(right)
        # One of the workers goes; the other makes all plans.
        left.processes["planning"].kill()
        left.processes["planning"].wait()
        await planned(left)
        await planned(right)
    for member in (node, gateway):
        assert member.versions == sorted(member.versions)

    with right.rest() as rest:
        versions = [plan["version"] for plan in rest.get("/plans/").json()["results"]]
        seen = {item["name"]: item["connected"] for item in rest.get("/nodes/").json()["results"]}
    assert versions == sorted(set(versions), reverse=True) and len(versions) >= 4
    assert set(seen) == {"box"}
