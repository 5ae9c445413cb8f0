"""Shares of the machine: a box in a control group of its own (version 1 or 2).

The group has a weight and perhaps a quota. A weight gives a box its turns beside the others, and beside other work, as
if it had cores of its own. A quota makes it as slow as another kind of box.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tools.waiting import eventually

_ROOT = Path("/sys/fs/cgroup")
_FIRST = (_ROOT / "cpu").is_dir()
#: Microseconds. Short, so that a batch is slowed evenly rather than stopped in its middle.
_PERIOD_US = 10_000
_AWAY_S = 5.0


class Share:
    """A control group for the processes of one box.

    Args:
        weight: how many processes it counts as where the machine is busy.

    Raises:
        OSError: this machine lets nobody make control groups with quotas.
    """

    def __init__(self, name: str, weight: int) -> None:
        self._folder = (_ROOT / "cpu" if _FIRST else _ROOT) / name
        self._folder.mkdir(exist_ok=True)
        self._write("cpu.shares" if _FIRST else "cpu.weight", weight * (1024 if _FIRST else 100))
        self.limit(None)
        #: begins a command that runs in the group
        self.inside = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs")]

    def enter(self) -> None:
        self._write("cgroup.procs", os.getpid())

    def limit(self, cores: float | None) -> None:
        """Let its processes have so much of a core together; None: all that they can get."""
        quota = round(cores * _PERIOD_US) if cores is not None else "-1" if _FIRST else "max"
        if _FIRST:
            self._write("cpu.cfs_period_us", _PERIOD_US)
            self._write("cpu.cfs_quota_us", quota)
        else:
            self._write("cpu.max", f"{quota} {_PERIOD_US}")

    def remove(self) -> None:
        (self._folder.parent / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(TimeoutError):
            eventually(self._removed, _AWAY_S, why=f"{self._folder} is empty")

    def _removed(self) -> bool:
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        return not self._folder.exists()

    def _write(self, file: str, value: object) -> None:
        (self._folder / file).write_text(str(value))
