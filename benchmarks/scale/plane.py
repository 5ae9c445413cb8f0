"""The control plane's processes alone, in a home folder of their own.

They are started by ``python -m benchmarks.scale.plane``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psutil

from appliance import secrets
from appliance.local import proc, services
from appliance.local.supervisor import Supervisor
from tools.child import ROOT, eventually, free_ports
from workers import descriptors
from workers.settings import Settings

#: how each process is recognised by its command line
ROLES = {
    "web": "gunicorn",
    "planning": "planning@nereus",
    "simulation": "simulation@nereus",
    "celery": "control@nereus",
    "redis": "redis",
}


def bound(module: str, *arguments: object) -> list[str]:
    """Return a command that runs a module of the benchmark bound to this process.

    It ends with this process, however that ends.
    """
    launch = str(Path(proc.__file__).with_name("launch.py"))
    command = [sys.executable, "-I", "-S", launch, str(os.getpid()), "0", sys.executable, "-m", module]
    return [*command, *map(str, arguments)]


async def _run() -> None:
    # Nothing is served here that the control plane would have to stand behind.
    services.NICE = 0
    values = Settings.from_environ()
    values.make_folders()
    descriptors.raise_limit()
    proc.adopt_orphans()
    secrets.make_credentials(values.home)
    supervisor = Supervisor(values.socket_folder)
    supervisor.install_signals()
    supervisor.guard.start()
    log = values.home / "plane.log"
    supervisor.keep(services.control_plane(values, log))
    try:
        await supervisor.run()
    finally:
        await supervisor.stop()


class Plane:
    """The child process, and what is asked of it."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        (port,) = free_ports(1)
        self.console = f"http://127.0.0.1:{port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEREUS_")}
        self.environment = {
            **kept,
            "NEREUS_HOME": str(home),
            "NEREUS_CONSOLE": f"127.0.0.1:{port}",
            "NEREUS_LOG_LEVEL": "warning",
            **environment,
        }
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Plane:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(
                bound("benchmarks.scale.plane"),
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        eventually(self._ready, 240, why="the control plane")
        return self

    def __exit__(self, *_error) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError((self.home / "supervisor.log").read_text()[-2000:])
        import httpx2

        try:
            answer = httpx2.get(f"{self.console}/health/", timeout=5)
            return answer.status_code == 200 and len(self.pids()) == len(ROLES)
        except httpx2.HTTPError:
            return False

    def pids(self) -> dict[str, int]:
        """Process ids by role; of web, the worker's."""
        found: dict[str, int] = {}
        for child in psutil.Process(self._process.pid).children(recursive=True):
            try:
                line = " ".join(child.cmdline())
            except psutil.Error:
                continue
            for role, pattern in ROLES.items():
                # Children come after their parents: gunicorn's worker is the last.
                if pattern in line and "launch.py" not in line:
                    found[role] = child.pid
        return found

    def settings(self) -> Settings:
        names = {name: value for name, value in self.environment.items() if name.startswith("NEREUS_")}
        return Settings.from_environ(names)

    def manage(self, module: str, *arguments: str) -> str:
        """Run a module of this package with the plane's settings; what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{module}: {done.stderr[-2000:]}")
        return done.stdout


if __name__ == "__main__":
    asyncio.run(_run())
