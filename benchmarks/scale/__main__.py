"""Costs of the control plane by its members.

Measured are joins, steady state, plans, a mass reconnect and the console's pages.

Each size has a fresh control plane (SQLite and the private Redis, unless NEREUS_DATABASE_URL or NEREUS_REDIS_URL say
otherwise). Members are played by one process on the same machine, whose processor time is listed apart.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import redis

from appliance.demo.rest import client
from benchmarks.watch import Sampling, Watch
from tools import chromium
from tools.child import ROOT
from tools.waiting import eventually

from . import pages
from .plane import Plane

#: seconds for anything that members must get to
LONGEST_S = 600.0
#: seconds without any change after which the cluster is taken for settled: more than a plan for members that came, and
#: the upkeep that makes up for what was lost, let wait
QUIET_S = 15.0
#: pause of the client of the REST API between two requests, seconds
EVERY_S = 0.5
#: pages that a client of the REST API reads in turn while everything else happens
PATHS = ("/applications/", "/nodes/", "/devices/?limit=100", "/plans/?limit=5")


class Members:
    def __init__(self, console: str, nodes: int, devices: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.scale.members", console, str(nodes), str(devices)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def ask(self, *command: object) -> dict:
        self._process.stdin.write(" ".join(map(str, command)) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def configured(self) -> dict | None:
        state = self.ask("state")
        return state if state["configured"] == state["members"] else None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Rest:
    """A client that reads the REST API in turn; a context manager."""

    def __init__(self, plane: Plane) -> None:
        self._client = plane.rest()
        self._client.timeout = LONGEST_S
        self._sampling = Sampling([(self._ask, EVERY_S)])
        self.took: list[tuple[float, float]] = []
        self.failed = 0

    def __enter__(self) -> Rest:
        self._sampling.start()
        return self

    def __exit__(self, *_error) -> None:
        self._sampling.stop()
        self._client.close()

    def _ask(self) -> None:
        began = time.monotonic()
        try:
            ok = self._client.get(PATHS[len(self.took) % len(PATHS)]).status_code == 200
        except httpx2.HTTPError:
            ok = False
        self.failed += not ok
        self.took.append((began, time.monotonic() - began))

    def between(self, start: float, end: float) -> dict[str, float]:
        """Percentiles in ms of requests that began between two moments."""
        took = sorted(1e3 * seconds for at, seconds in self.took if start <= at <= end) or [float("nan")]
        return {"p50_ms": statistics.median(took), "p95_ms": took[math.ceil(0.95 * len(took)) - 1], "max_ms": took[-1]}


class Run:
    def __init__(self, options: argparse.Namespace, nodes: int, folder: Path) -> None:
        self.options, self.nodes = options, nodes
        self.devices = max(nodes, round(options.devices * nodes / max(options.nodes)))
        kept = {name: os.environ[name] for name in ("NEREUS_DATABASE_URL", "NEREUS_REDIS_URL") if name in os.environ}
        self.plane = Plane(folder / f"home-{nodes}", NEREUS_PLAN_PERIOD_S="3600", **kept)
        self.found: dict[str, object] = {"nodes": nodes, "devices": self.devices}

    def measure(self) -> dict[str, object]:
        with self.plane as plane:
            plane.manage("benchmarks.scale.registry", str(self.options.applications))
            pids = plane.pids()
            self.members = Members(plane.console, self.nodes, self.devices)
            watched = {**pids, "members": self.members.pid}
            try:
                with Watch(watched, every_s=0.5) as self.watch, Rest(plane) as self.rest:
                    self._join()
                    self._settle("settle", 0)
                    self._steady()
                    self._plan("plan")
                    planned = self.members.ask("state")["version"]
                    self._reconnect()
                    self._settle("settle_again", planned)
                    if self.options.pages:
                        self._paint(plane.credentials)
                self.found["members_refused"] = self.members.ask("state")["refused"]
                self.found["load"] = os.getloadavg()[0]
            finally:
                self.members.close()
        self.found["rest_failed"] = self.rest.failed
        # A process that ended: figures of processor time after that are of no use.
        self.found["unsampled"] = self.watch.failed
        return self.found

    def _join(self) -> None:
        began = time.monotonic()
        state = self._all("all members joined")
        self.found["join_s"] = state["last_join"] - began
        self._cost("join", began, time.monotonic())

    def _all(self, why: str) -> dict:
        try:
            return eventually(self.members.configured, LONGEST_S, 0.1, why)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self.members.ask('state')}") from None

    def _settle(self, name: str, planned: int) -> None:
        """Wait until all members hold the newest plan and none is sent anything.

        Recorded are the seconds from the last join to the last change, what was sent in that time, and the plans since
        the one of version ``planned``.
        """
        began = last = self.members.ask("state")["last_join"]
        first = state = self.members.ask("state")
        while time.monotonic() - last < QUIET_S or not 0 < state["oldest"] == state["version"]:
            if time.monotonic() - began > LONGEST_S:
                raise TimeoutError(f"not settled within {LONGEST_S:g} s: {state}")
            time.sleep(0.25)
            now = self.members.ask("state")
            if (now["received"], now["joined"], now["version"]) != (
                state["received"],
                state["joined"],
                state["version"],
            ):
                last = time.monotonic()
            state = now
        self._cost(name, began, max(last, began + 1.0))
        self.found[name] |= {
            "seconds": last - began,
            "plans": state["version"] - planned,
            "answers": state["received"] - first["received"],
            "lost_links": state["failures"] - first["failures"],
        }

    def _plan(self, name: str) -> None:
        """Ask for a plan, and time it until all members hold it.

        Recorded are the solve's time, the time until the first member holds the plan, and from there until the last one
        does.
        """
        with client(self.plane.console, self.plane.credentials["api_token"]) as rest:
            rest.timeout = LONGEST_S
            before = self.members.ask("state")["version"]
            time.sleep(1.0)
            began = time.monotonic()
            # 503: the database is locked at the moment.
            eventually(lambda: rest.post("/plan/").status_code == 202, LONGEST_S, 0.5, "a plan asked for")
            eventually(lambda: self.members.ask("state")["version"] > before, LONGEST_S, 0.05, "a plan")
            version = self.members.ask("state")["version"]
            hold = eventually(lambda: self._held(version), LONGEST_S, 0.05, "all members hold the plan")
            solve_s = rest.get("/plans/?limit=1").json()["results"][0]["solve_s"]
            self._cost(name, began, time.monotonic())
        self.found[name] |= {
            "solve_s": solve_s,
            "first_member_s": hold["first"] - began,
            "push_s": hold["last"] - hold["first"],
        }

    def _held(self, version: int) -> dict | None:
        answer = self.members.ask("hold", version)
        return answer if "last" in answer else None

    def _steady(self) -> None:
        began, before = time.monotonic(), self.members.ask("state")
        commands = self._commands()
        time.sleep(self.options.seconds)
        after, ended = self.members.ask("state"), time.monotonic()
        self._cost("steady", began, ended)
        self.found["steady"] |= {
            "messages_per_s": (after["sent"] - before["sent"]) / (ended - began),
            "answers_per_s": (after["received"] - before["received"]) / (ended - began),
            "redis_commands_per_s": (self._commands() - commands) / (ended - began),
            "lost_links": after["failures"] - before["failures"],
        }

    def _commands(self) -> int:
        settings = self.plane.settings()
        url = settings.redis_url or f"unix://{settings.socket_folder / 'redis.sock'}"
        return redis.Redis.from_url(url).info("stats")["total_commands_processed"]

    def _reconnect(self) -> None:
        cut = self.members.ask("cut")["at"]
        time.sleep(0.5)
        state = self._all("all members back")
        self.found["reconnect_s"] = state["last_join"] - cut
        self._cost("reconnect", cut, time.monotonic())

    def _paint(self, secrets: dict[str, str]) -> None:
        if not chromium.installed():
            self.found["pages"] = "no chromium on this machine"
            return
        with chromium.console(self.plane.console, secrets) as page:
            self.found["pages"] = {name: pages.paint(page, name, self.devices) for name in pages.PAGES}

    def _cost(self, name: str, start: float, end: float) -> None:
        cores = {role: self.watch.cores(role, start, end) for role in self.watch.samples}
        self.found[name] = {
            "cores": {role: round(value, 3) for role, value in cores.items()},
            "plane_cores": sum(value for role, value in cores.items() if role != "members"),
            "plane_s": (end - start) * sum(value for role, value in cores.items() if role != "members"),
            "web_s": (end - start) * cores["web"],
            "web_mib": self.watch.at("web", end).rss_mib,
            "rest": self.rest.between(start, end),
        }


def table(found: list[dict]) -> str:
    rows = {
        "devices": lambda f: f["devices"],
        "all joined, s": lambda f: f["join_s"],
        "all joined: processor time, s": lambda f: f["join"]["plane_s"],
        "joined until settled, s": lambda f: f["settle"]["seconds"],
        "joined until settled: plans": lambda f: f["settle"]["plans"],
        "joined until settled: processor time, s": lambda f: f["settle"]["plane_s"],
        "steady: messages/s": lambda f: f["steady"]["messages_per_s"],
        "steady: control plane, cores": lambda f: f["steady"]["plane_cores"],
        "steady: web, cores": lambda f: f["steady"]["cores"]["web"],
        "steady: Redis, cores": lambda f: f["steady"]["cores"]["redis"],
        "steady: Redis commands/s": lambda f: f["steady"]["redis_commands_per_s"],
        "steady: REST p50 / p95, ms": lambda f: _pair(f["steady"]["rest"]),
        "web, MiB": lambda f: f["steady"]["web_mib"],
        "plan: processor time, s": lambda f: f["plan"]["plane_s"],
        "plan: solve, s": lambda f: f["plan"]["solve_s"],
        "plan: request to first member, s": lambda f: f["plan"]["first_member_s"],
        "plan: first to last member, s": lambda f: f["plan"]["push_s"],
        "plan: REST p50 / p95, ms": lambda f: _pair(f["plan"]["rest"]),
        "all links cut: all back, s": lambda f: f["reconnect_s"],
        "all links cut: processor time, s": lambda f: f["reconnect"]["plane_s"],
        "back until settled, s": lambda f: f["settle_again"]["seconds"],
        "back until settled: plans": lambda f: f["settle_again"]["plans"],
        "all links cut: REST p50 / p95, ms": lambda f: _pair(f["reconnect"]["rest"]),
        "overview: first paint / all devices, s": lambda f: _painted(f, "overview"),
        "nodes: first paint / all devices, s": lambda f: _painted(f, "nodes"),
        "load of the machine": lambda f: f["load"],
    }
    lines = ["| nodes | " + " | ".join(str(f["nodes"]) for f in found) + " |", "|---|" + "---:|" * len(found)]
    for name, value in rows.items():
        cells = (value(f) for f in found)
        texts = [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells]
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _pair(rest: dict[str, float]) -> str:
    return f"{rest['p50_ms']:.0f} / {rest['p95_ms']:.0f}"


def _painted(found: dict, page: str) -> str:
    shown = found.get("pages")
    return f"{shown[page]['first_s']:.2f} / {shown[page]['whole_s']:.2f}" if isinstance(shown, dict) else "–"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[20, 40, 80, 160])
    parser.add_argument("--devices", type=int, default=1000, help="of the largest size; smaller ones have their part")
    parser.add_argument("--applications", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady state")
    parser.add_argument("--pages", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    options = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        for nodes in sorted(options.nodes):
            found.append(Run(options, nodes, Path(folder)).measure())
            print(json.dumps(found[-1]), flush=True)
    print(table(found))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
