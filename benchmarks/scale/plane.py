"""A control plane alone, in a home folder of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Appliance
from tools.child import ROOT
from workers.settings import Settings

#: processes that are watched
ROLES = ("web", "planning", "simulation", "celery", "redis")


class Plane(Appliance):
    """``manage.py up --only control``, and what is asked of it; a context manager."""

    def __init__(self, home: Path, **environment: str) -> None:
        super().__init__(home, "--only", "control", environment={"NEREUS_LOG_LEVEL": "warning", **environment})

    def __enter__(self) -> Plane:
        self.start(until="Ready after")
        return self

    def __exit__(self, *_error) -> None:
        self.stop()

    def pids(self) -> dict[str, int]:
        """Process ids by role; of those with workers, a worker's, which is younger."""
        return {role: self.processes(role)[-1].pid for role in ROLES}

    def settings(self) -> Settings:
        names = {name: value for name, value in self.environment.items() if name.startswith("NEREUS_")}
        return Settings.from_environ(names)

    def manage(self, module: str, *arguments: str) -> str:
        """Run a module of this package with the plane's settings; what it printed."""
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{module}: {done.stderr[-2000:]}")
        return done.stdout
