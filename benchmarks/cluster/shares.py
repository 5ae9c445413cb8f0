"""Shares of the machine: a box in a control group of its own (version 1 or 2).

The group has a weight and perhaps a quota. A weight gives a box its turns beside the others, and beside other work, as
if it had cores of its own. A quota makes it as slow as another kind of box.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
#: Microseconds. Short, so that a batch is slowed evenly rather than stopped in its middle.
_PERIOD_US = 10_000
_AWAY_S = 5.0


class Share:
    """A control group for the processes of one box.

    Args:
        name: of the group.
        weight: how many processes it counts as where the machine is busy.
        cores: what its processes get together, once :meth:`limit` says so; None: no quota.

    Raises:
        OSError: this machine lets nobody make control groups with quotas.
    """

    def __init__(self, name: str, weight: int, cores: float | None = None) -> None:
        self._first = (_ROOT / "cpu").is_dir()
        self._folder = (_ROOT / "cpu" if self._first else _ROOT) / name
        self._cores = cores
        self._folder.mkdir(exist_ok=True)
        one, file = (1024, "cpu.shares") if self._first else (100, "cpu.weight")
        (self._folder / file).write_text(str(one * weight))
        self.lift()

    def enter(self) -> None:
        self._members.write_text(str(os.getpid()))

    def leave(self) -> None:
        (self._folder.parent / "cgroup.procs").write_text(str(os.getpid()))

    def command(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._members), *command]

    def limit(self) -> None:
        if self._cores is not None:
            self._quota(str(round(self._cores * _PERIOD_US)))

    def lift(self) -> None:
        self._quota("-1" if self._first else "max")

    def remove(self) -> None:
        until = time.monotonic() + _AWAY_S
        while self._folder.exists() and time.monotonic() < until:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)

    @property
    def _members(self) -> Path:
        return self._folder / "cgroup.procs"

    def _quota(self, quota: str) -> None:
        if self._first:
            (self._folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(quota)
        else:
            (self._folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
