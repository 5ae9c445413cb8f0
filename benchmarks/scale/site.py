"""A control plane with applications, members and history."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from benchmarks.harness import Appliance
from tools.child import ROOT
from tools.waiting import eventually

#: seconds for anything that members must get to
LONGEST_S = 600.0
#: plans that :meth:`Site.fill` asks for beside the first one, so that there is a trail
PLANS = 2


class Members:
    def __init__(self, console: str, nodes: int, devices: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scale.members", console, str(nodes), str(devices)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid

    def ask(self, *command: object) -> dict:
        self._process.stdin.write(" ".join(map(str, command)) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def all_configured(self) -> dict:
        """Wait for it; the members' state."""

        def configured() -> dict | None:
            state = self.ask("state")
            return state if state["configured"] == state["members"] else None

        try:
            return eventually(configured, LONGEST_S, 0.1, "all members joined")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.ask('state')}") from None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


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
                before = self.members.ask("state")["version"]
                ask_plan(rest)
                eventually(lambda before=before: self.members.ask("state")["oldest"] > before, LONGEST_S, why="a plan")
                # Members report what they hold each second.
                time.sleep(1.0)


def ask_plan(rest: httpx2.Client) -> None:
    # 503: the database is locked at the moment.
    eventually(lambda: rest.post("/plan/").status_code == 202, LONGEST_S, 0.5, "a plan asked for")
