"""Starting and ending one service, in a process group of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .probes import Probe

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_GUARD = str(Path(__file__).with_name("guard.py"))


class Guard:
    """The process that cleans up after a supervisor that was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen | None = None
        self._groups: set[int] = set()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, with the groups that were added already; nothing where it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", _GUARD, str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        for group in self._groups:
            self._write(f"add {group}")

    def add(self, group: int) -> None:
        self._groups.add(group)
        self._write(f"add {group}")

    def remove(self, group: int) -> None:
        self._groups.discard(group)
        self._write(f"remove {group}")

    def _write(self, line: str) -> None:
        if self._process is None:
            return
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            # It was killed. Its successor gets all groups.
            pass

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait(10)


@dataclass(frozen=True)
class Liveness:
    """The rule by which a service counts as hung.

    Attributes:
        every_s: seconds between two looks.
        misses: looks in a row without an answer after which it does.
        from_start: whether it must answer once within the service's ``ready_s``; heartbeats come later.
    """

    probe: Probe
    every_s: float = 2.0
    timeout_s: float = 2.0
    misses: int = 3
    from_start: bool = True


@dataclass
class SupervisedService:
    """One supervised process.

    Attributes:
        environment: variables beside the supervisor's own.
        alive: how a hung process is noticed; None: only a stopped one is.
        ready: whether it can be used, where that is more than being alive.
        ready_s: seconds after the start in which it must be alive; doubled after each start that failed.
        stop_s: how long it may take to end after SIGTERM.
        nice: how far it stands behind serving, 0 to 19.
        once: it does one thing and ends, with status 0 once that is done.
        after: services that must have been ready before it starts.
        log: the file that takes its output; that of a service that runs ``once`` is for the operator instead.
        repair: called when it failed to start several times; returns what it changed.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    alive: Liveness | None = None
    ready: Probe | None = None
    ready_s: float = 60.0
    stop_s: float = 3.0
    nice: int = 0
    once: bool = False
    after: tuple[str, ...] = ()
    log: Path | None = None
    repair: Callable[[], str | None] | None = None
    process: asyncio.subprocess.Process | None = None
    starting: bool = False
    up: asyncio.Event = field(default_factory=asyncio.Event)
    _group: int | None = None

    async def start(self, guard: Guard) -> None:
        """Start the process in a session of its own.

        So Ctrl-C reaches the supervisor alone. Must be called in the main thread: the kernel ends a child when the
        thread that started it ends.

        Raises:
            OSError: no process or file descriptor is left.
        """
        output = self.log.open("ab", buffering=0) if self.log is not None else None
        self.starting = True
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", _LAUNCH, str(os.getpid()), str(self.nice), *self.command),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.once else output,
                stderr=output if self.once or output is None else subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            self.starting = False
            if output is not None:
                output.close()
        self._group = self.process.pid
        guard.add(self._group)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def stop(self, guard: Guard) -> None:
        """SIGTERM to the group's leader; SIGKILL to the whole group when its time is over."""
        if self.running:
            self.process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), self.stop_s)
        await self.kill(guard)

    async def kill(self, guard: Guard) -> None:
        """SIGKILL to the whole group: a leader that died may leave children behind, too."""
        if self._group is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        await self.process.wait()
        guard.remove(self._group)
        # Another group may get the number from now on.
        self._group = None
