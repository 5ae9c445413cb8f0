"""A control plane with applications, members and history."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx2

from benchmarks.harness import Appliance
from benchmarks.spawned import Spawned
from tools.child import ROOT
from tools.waiting import eventually

from .members import play

#: seconds for anything that members must get to
LONGEST_S = 600.0
#: plans that :meth:`Site.fill` asks for beside the first one, so that there is a trail
PLANS = 2


class Members(Spawned):
    """The process that plays all nodes and a gateway (:mod:`.members`)."""

    def __init__(self, console: str, nodes: int, devices: int) -> None:
        super().__init__(play, console, nodes, devices)

    def state(self) -> dict:
        return self.ask(("state",))

    def all_configured(self) -> dict:
        """Wait for it; the members' state."""

        def configured() -> dict | None:
            state = self.state()
            return state if state["configured"] == state["members"] else None

        try:
            return eventually(configured, LONGEST_S, 0.1, "all members joined")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.state()}") from None


class Site(Appliance):
    """``manage.py up --only control`` and members that exist in the protocol alone; a context manager.

    It starts empty; :meth:`fill` brings applications, nodes and their devices, plans and history.
    """

    def __init__(self, home: Path, **environment: str) -> None:
        usual = {"NEREUS_LOG_LEVEL": "warning", "NEREUS_PLAN_PERIOD_S": "3600"}
        super().__init__(home, "--only", "control", environment=usual | environment)
        self.members: Members | None = None

    def __enter__(self) -> Site:
        self.start(until="Ready after")
        return self

    def __exit__(self, *_error) -> None:
        if self.members is not None:
            self.members.close()
        self.stop()

    def rest(self) -> httpx2.Client:
        found = super().rest()
        found.timeout = LONGEST_S
        return found

    def write(self, applications: int, history: float) -> None:
        command = [sys.executable, "-m", "benchmarks.scale.filling", str(applications), str(history)]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])

    def join(self, nodes: int, devices: int) -> Members:
        self.members = Members(self.console, nodes, devices)
        return self.members

    def fill(self, applications: int, nodes: int, devices: int, history: float) -> None:
        """Fill it; ``history``: the part of a year's history, 0 to 1, the newest."""
        self.write(applications, 0)
        self.join(nodes, devices).all_configured()
        self.write(0, history)
        with self.rest() as rest:
            for _ in range(PLANS):
                before = self.members.state()["version"]
                ask_plan(rest)
                eventually(lambda before=before: self.members.state()["oldest"] > before, LONGEST_S, why="a plan")
                # Members report what they hold each second.
                time.sleep(1.0)


def ask_plan(rest: httpx2.Client) -> None:
    # 503: the database is locked at the moment.
    eventually(lambda: rest.post("/plan/").status_code == 202, LONGEST_S, 0.5, "a plan asked for")
