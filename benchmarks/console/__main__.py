"""The console with many applications, devices and open pages.

It measures the cost of a page and of open consoles.

A control plane of its own (SQLite, private Redis) with members that exist in the protocol alone and a year of history.
Pages are opened in Debian's chromium; processor times are those of the processes' own clocks, since the machine may be
busy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from benchmarks.console import pages
from benchmarks.console.site import Site
from benchmarks.scale.plane import bound
from benchmarks.watch import Watch
from tools import chromium
from tools.child import ROOT

PAGES = {
    "overview": "/",
    "overview, 90 days": "/?range=7776000",
    "applications": "/applications/",
    "application": "/applications/app-00/",
    "plans": "/plans/",
    "plan": "/plan/",
    "what if": "/what-if/",
    "promises": "/promises/",
    "nodes": "/nodes/",
    "repairs": "/repairs/",
    "audit": "/audit/",
}
#: seconds that consoles are open before they count
SETTLE_S = 15.0


def rendered(site: Site) -> dict[str, dict[str, float]]:
    """The server's work for each page, by :mod:`.rendering`."""
    paths = {name: path.partition("?")[0].replace("/plan/", f"/plans/{site.version}/") for name, path in PAGES.items()}
    found = json.loads(site.plane.manage("benchmarks.console.rendering", *dict.fromkeys(paths.values())))
    return {name: found[path] for name, path in paths.items()}


def painted(site: Site, seconds: float) -> dict[str, dict]:
    """Chromium's work for each page, by :mod:`.pages`."""
    if not chromium.installed():
        return {}
    with chromium.console(site.console, site.secrets) as page:
        session = pages.prepare(page)
        return {name: pages.measure(page, session, path, seconds) for name, path in PAGES.items()}


def cookie(site: Site) -> str:
    """The cookie of a session."""
    with httpx2.Client(base_url=site.console, timeout=60) as client:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get("/login/").text)[1]
        fields = {
            "username": site.secrets["console_user"],
            "password": site.secrets["console_password"],
            "csrfmiddlewaretoken": token,
        }
        client.post("/login/", data=fields, headers={"Referer": site.console + "/login/"})
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def consoles(site: Site, count: int, silent: int, seconds: float) -> dict[str, object]:
    """The web process without and with open consoles, some of which never read."""
    url = f"ws{site.console.removeprefix('http')}/ws/console/live/"
    with Watch({"web": site.plane.pids()["web"]}, every_s=0.5) as watch:
        begin = time.monotonic()
        time.sleep(seconds)
        alone = time.monotonic()
        readers = subprocess.Popen(
            bound("benchmarks.console.readers", url, cookie(site), site.console, count, silent),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(SETTLE_S)
        opened = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        found = json.loads(readers.communicate("\n", timeout=120)[0])
        return found | {
            "web_cores_alone": watch.cores("web", begin, alone),
            "web_cores_open": watch.cores("web", opened, end),
            "web_mib_alone": watch.at("web", alone).rss_mib,
            "web_mib_opened": watch.at("web", opened).rss_mib,
            "web_mib_end": watch.at("web", end).rss_mib,
            "silent": silent,
        }


def table(found: dict) -> str:
    """The pages' figures as Markdown."""
    lines = [
        "| page | queries | server, ms of processor time | KB over the network | requests | first paint, ms "
        "| processor time until live, ms | per live second, ms | long tasks opening / live, ms |",
        "|---|" + "---:|" * 8,
    ]
    for name, server in found["rendered"].items():
        page = found["painted"].get(name)
        shown = ["–"] * 6
        if page:
            tasks = [max(page[key], default=0) for key in ("long_tasks_opening", "long_tasks_live")]
            shown = [
                f"{page['bytes'] / 1000:.0f}",
                str(page["requests"]),
                f"{page['first_ms'] or float('nan'):.0f}",
                f"{page['open_cpu_ms']:.0f}",
                f"{page['live_cpu_ms']['TaskDuration']:.0f}",
                f"{tasks[0]:.0f} / {tasks[1]:.0f}",
            ]
        lines.append(f"| {name} | {server['queries']} | {server['cpu_ms']:.0f} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks console", description=__doc__)
    parser.add_argument("--applications", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--devices", type=int, default=160)
    parser.add_argument("--part", type=float, default=1.0, help="of a year's history, the newest; 0 to 1")
    parser.add_argument("--consoles", type=int, default=50)
    parser.add_argument("--silent", type=int, default=3, help="consoles that never read, beside the others")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each page, and of the open consoles")
    parser.add_argument("--pages", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    options = parser.parse_args(arguments)
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="console-") as folder, Site(Path(folder)) as site:
        site.fill(options.applications, options.nodes, options.devices, options.part)
        if options.pages:
            found["rendered"] = rendered(site)
            found["painted"] = painted(site, options.seconds)
            print(table(found), flush=True)
        found["consoles"] = consoles(site, options.consoles, options.silent, options.seconds)
        found["load"] = os.getloadavg()[0]
    print(json.dumps({"consoles": found["consoles"], "load": found["load"]}, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
