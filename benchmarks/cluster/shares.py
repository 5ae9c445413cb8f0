"""Shares of a core: a box in a control group with a quota (version 1 or 2), so that it is as slow as another kind."""

from __future__ import annotations

import contextlib
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
        cores: what its processes get together, once :meth:`limit` says so.

    Raises:
        OSError: this machine lets nobody make control groups with quotas.
    """

    def __init__(self, name: str, cores: float) -> None:
        self._first = (_ROOT / "cpu").is_dir()
        self._folder = (_ROOT / "cpu" if self._first else _ROOT) / name
        self._cores = cores
        self._folder.mkdir(exist_ok=True)
        self.lift()

    def command(self, command: Sequence[str]) -> list[str]:
        """The command as it is run in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def limit(self) -> None:
        """Slow the box from now on."""
        self._write(str(round(self._cores * _PERIOD_US)))

    def lift(self) -> None:
        """Let the box have what it wants, as while it starts."""
        self._write("-1" if self._first else "max")

    def remove(self) -> None:
        """Remove the group, in which no process is left."""
        until = time.monotonic() + _AWAY_S
        while self._folder.exists() and time.monotonic() < until:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)

    def _write(self, quota: str) -> None:
        if self._first:
            (self._folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(quota)
        else:
            (self._folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
