"""Costs of the control plane by its members.

Measured are joins, steady state, plans, a mass reconnect and the console's pages. Each size has a fresh control plane
(SQLite and the private Redis). Members are played by one process on the same machine, whose CPU time is left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import redis

from benchmarks.figures import markdown
from benchmarks.watch import Sampling, Watch
from tools import chromium
from tools.waiting import eventually

from .site import LONGEST_S, Members, Site, ask_plan

#: seconds without any change after which the cluster is taken for settled: more than a plan for members that came, and
#: the upkeep that makes up for what was lost, let wait
QUIET_S = 15.0
#: pages that a client of the REST API reads in turn while everything else happens, and seconds between two
PATHS, EVERY_S = ("/applications/", "/nodes/", "/devices/?limit=100", "/plans/?limit=5"), 0.5
#: processes that are watched
ROLES = ("web", "planning", "simulation", "celery", "redis")
#: page of the console: what must be shown before it counts as painted, for each device
PAGES = {"overview": ("/", "#map [data-testid^='device-']"), "nodes": ("/nodes/", "#nodes [data-testid^='device-']")}


class Run:
    """One size; :attr:`figures` are the rows of the table."""

    def __init__(self, options: argparse.Namespace, nodes: int, folder: Path) -> None:
        self._options, self._nodes = options, nodes
        self.devices = max(nodes, round(options.devices * nodes / max(options.nodes)))
        self._site = Site(folder / f"home-{nodes}")
        #: when a request to the REST API began, and what it took in ms
        self._asked: list[tuple[float, float]] = []
        self.figures: dict[str, object] = {"nodes": nodes, "devices": self.devices}

    def measure(self) -> dict[str, object]:
        with self._site as site, site.rest() as self._rest:
            site.write(self._options.applications, 0)
            # The last is the youngest: where a role has workers, one of them.
            pids = {role: site.processes(role)[-1].pid for role in ROLES}
            asking = Sampling([(self._ask, EVERY_S)])
            self._members = site.join(self._nodes, self.devices)
            with Watch(pids, every_s=0.5) as self._watch:
                asking.start()
                self._join()
                self._steady()
                self._plan()
                self._reconnect()
                asking.stop()
            if self._options.pages and chromium.installed():
                self._paint()
        # A process that ended: figures of CPU time after that are of no use.
        self.figures["unsampled"] = self._watch.failed
        return self.figures

    def _ask(self) -> None:
        began = time.monotonic()
        self._rest.get(PATHS[len(self._asked) % len(PATHS)]).raise_for_status()
        self._asked.append((began, 1e3 * (time.monotonic() - began)))

    def _cores(self, start: float, end: float) -> dict[str, float]:
        return {role: self._watch.cores(role, start, end) for role in ROLES}

    def _cost(self, phase: str, start: float, end: float) -> None:
        self.figures[f"{phase}: CPU time, s"] = (end - start) * sum(self._cores(start, end).values())

    def _latency(self, phase: str, start: float, end: float) -> None:
        took = [ms for at, ms in self._asked if start <= at <= end] or [float("nan")]
        self.figures[f"{phase}: REST p50 / p95, ms"] = f"{np.median(took):.0f} / {np.quantile(took, 0.95):.0f}"

    # --- phases ---

    def _join(self) -> None:
        began = time.monotonic()
        self.figures["all joined, s"] = self._members.all_configured()["last_join"] - began
        self._cost("all joined", began, time.monotonic())
        began, over = self._settle("joined until settled", 0)
        self._cost("joined until settled", began, over)

    def _settle(self, phase: str, planned: int) -> tuple[float, float]:
        """Wait until all members hold the newest plan and none is sent anything.

        Recorded are the seconds from the last join to the last change, and the plans since the one of version
        ``planned``. Returns when that was.
        """
        state = self._members.state()
        began = last = state["last_join"]
        while time.monotonic() - last < QUIET_S or not 0 < state["oldest"] == state["version"]:
            if time.monotonic() - began > LONGEST_S:
                raise TimeoutError(f"not settled within {LONGEST_S:g} s: {state}")
            time.sleep(0.25)
            now = self._members.state()
            if any(now[name] != state[name] for name in ("received", "last_join", "version")):
                last = time.monotonic()
            state = now
        self.figures |= {f"{phase}, s": last - began, f"{phase}: plans": state["version"] - planned}
        return began, max(last, began + 1.0)

    def _steady(self) -> None:
        began, before = time.monotonic(), self._members.state()
        with redis.Redis(unix_socket_path=str(self._site.home / "run" / "redis.sock")) as client:
            commands = client.info("stats")["total_commands_processed"]
            time.sleep(self._options.seconds)
            took, sent = time.monotonic() - began, self._members.state()["sent"] - before["sent"]
            commands = client.info("stats")["total_commands_processed"] - commands
        cores = self._cores(began, began + took)
        self.figures |= {
            "steady: messages/s": sent / took,
            "steady: control plane, cores": sum(cores.values()),
            "steady: web, cores": cores["web"],
            "steady: Redis, cores": cores["redis"],
            "steady: Redis commands/s": commands / took,
            "web, MiB": self._watch.at("web", began + took).memory,
        }
        self._latency("steady", began, began + took)

    def _plan(self) -> None:
        members, before = self._members, self._members.state()["version"]
        began = time.monotonic()
        ask_plan(self._rest)
        version = eventually(lambda: _newer(members, before), LONGEST_S, 0.05, "a plan")
        hold = eventually(lambda: members.ask(("hold", version)), LONGEST_S, 0.05, "all members hold the plan")
        self._cost("plan", began, time.monotonic())
        self.figures |= {
            "plan: solve, s": self._rest.get("/plans/?limit=1").json()["results"][0]["solve_s"],
            "plan: request to first member, s": hold["first"] - began,
            "plan: first to last member, s": hold["last"] - hold["first"],
        }

    def _reconnect(self) -> None:
        planned, cut = self._members.state()["version"], self._members.ask(("cut",))
        time.sleep(0.5)
        self.figures["all links cut: all back, s"] = self._members.all_configured()["last_join"] - cut
        over = time.monotonic()
        self._cost("all links cut", cut, over)
        self._latency("all links cut", cut, over)
        self._settle("back until settled", planned)

    def _paint(self) -> None:
        with chromium.console(self._site.console, self._site.credentials) as page:
            for name, (path, selector) in PAGES.items():
                began = time.monotonic()
                page.goto(path, wait_until="commit")
                page.wait_for_function(f"document.querySelectorAll({selector!r}).length >= {self.devices}")
                whole = time.monotonic() - began
                first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
                self.figures[f"{name}: first paint / all devices, s"] = f"{first / 1000:.2f} / {whole:.2f}"


def _newer(members: Members, before: int) -> int | None:
    version = members.state()["version"]
    return version if version > before else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[20, 40, 80, 160])
    parser.add_argument("--devices", type=int, default=1000, help="of the largest size; smaller ones have their part")
    parser.add_argument("--applications", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady state")
    parser.add_argument("--pages", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        for nodes in sorted(options.nodes):
            found.append(Run(options, nodes, Path(folder)).measure())
            print(found[-1], flush=True)
    print(markdown([{"": name, **{str(one["nodes"]): one.get(name) for one in found}} for name in found[0]]))
    return 0
