"""A control plane with applications, devices and history for the console's pages."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2

from appliance.demo.rest import client
from tools.waiting import eventually

from .__main__ import Members
from .plane import Plane

#: seconds for anything that the site must get to
LONGEST_S = 600.0
#: plans that are asked for beside the first one, so that there is a trail
PLANS = 2


class Site:
    """A control plane and members that exist in the protocol alone; a context manager.

    It starts empty; :meth:`fill` brings applications, nodes and their devices, plans and history.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.plane = Plane(folder / "home", NEREUS_PLAN_PERIOD_S="3600", **environment)
        self.members: Members | None = None
        self.version = 0
        """of the newest plan that was asked for"""

    def __enter__(self) -> Site:
        self.plane.__enter__()
        return self

    def __exit__(self, *error) -> None:
        if self.members is not None:
            self.members.close()
        self.plane.__exit__(*error)

    @property
    def console(self) -> str:
        return self.plane.console

    @property
    def secrets(self) -> dict[str, str]:
        return self.plane.credentials

    def rest(self) -> httpx2.Client:
        found = client(self.console, self.secrets["api_token"])
        found.timeout = LONGEST_S
        return found

    def fill(self, applications: int, nodes: int, devices: int, part: float) -> None:
        """Fill it.

        Args:
            applications: how many, of three profiled variants each.
            nodes: how many nodes join.
            devices: how many devices they have together.
            part: of a year's history, 0 to 1; the newest.
        """
        self.plane.manage("benchmarks.scale.registry", str(applications))
        self.members = Members(self.console, nodes, devices)
        eventually(self.members.configured, LONGEST_S, 0.2, "all members joined")
        if part > 0:
            self.plane.manage("benchmarks.scale.history", str(part))
        for _ in range(PLANS):
            self.plan()

    def plan(self) -> None:
        with self.rest() as rest:
            before = self._version(rest)
            eventually(lambda: rest.post("/plan/").status_code == 202, LONGEST_S, 0.5, "a plan asked for")
            self.version = eventually(lambda: self._newer(rest, before), LONGEST_S, 0.2, "a plan")
        # Members report what they hold each second.
        time.sleep(1.0)

    def _version(self, rest: httpx2.Client) -> int:
        plans = rest.get("/plans/?limit=1").json()["results"]
        return plans[0]["version"] if plans else 0

    def _newer(self, rest: httpx2.Client, before: int) -> int | None:
        version = self._version(rest)
        return version if version > before else None
