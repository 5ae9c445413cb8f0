"""An executor's process, started by this daemon or found running.

Signals, end and exit status, without races.

Executors run in sessions of their own and outlive a daemon that is killed. A file next to the device's socket names
the process for the next daemon, and for the guard that ends executors when there is no next daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .. import disk
from ..protocol.specs import DeviceInfo
from ..settings import Settings

_STOPPED, _DEAD = "Tt", "ZXx"


class ProcessStat(NamedTuple):
    """Fields of ``/proc/PID/stat``."""

    state: str  # one letter
    cpu_ticks: int  # CPU time in clock ticks
    started: int  # start time since boot in clock ticks
    status: int  # wait status


def process_stat(pid: int) -> ProcessStat | None:
    """None: there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # The text behind the name begins with field 3 of proc_pid_stat(5).
    return ProcessStat(fields[0], int(fields[11]) + int(fields[12]), int(fields[19]), int(fields[49]))


def pid_path(endpoint: str) -> Path:
    """The process file of the device that listens at ``unix:/path``: ``PID STARTED``."""
    socket = Path(endpoint.removeprefix("unix:"))
    return socket.with_name(f"executor-{socket.stem}.pid")


class ExecutorProcess:
    """A process, by a descriptor that no other process can take over.

    Attributes:
        child: started by this daemon; the exit status of others may be unknown.
        code: exit status once it has ended, negative: the signal. None: unknown.
    """

    def __init__(self, pid: int, *, child: bool):
        self.pid = pid
        self.child = child
        self.code: int | None = None
        self._descriptor = os.pidfd_open(pid)
        status = process_stat(pid)
        self.started = 0 if status is None else status.started
        self._cpu_ticks = 0
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    @classmethod
    def start(cls, command: Sequence[str], environ: Mapping[str, str], cores: Sequence[int]) -> ExecutorProcess:
        """Start ``command`` in a session of its own, on ``cores`` (empty: any)."""
        pid = os.posix_spawnp(
            command[0],
            list(command),
            dict(environ),
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE,),
        )
        # Its imports must not take other devices' cores; cores that are gone it reports itself.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, cores or os.sched_getaffinity(0))
        return cls(pid, child=True)

    @classmethod
    def find(cls, path: Path) -> ExecutorProcess | None:
        """The running process that the file names; None: gone, or its id is another's."""
        named = read_pid(path)
        if named is None:
            return None
        try:
            process = cls(named[0], child=False)
        except OSError:
            return None
        status = process_stat(process.pid)
        if status is None or status.state in _DEAD or process.started != named[1]:
            process.release()
            return None
        return process

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def write(self, path: Path) -> None:
        """Name the process in the file; raises OSError."""
        whole = path.with_suffix(".pid-new")
        whole.write_text(f"{self.pid} {self.started}\n")
        os.replace(whole, path)

    def send(self, number: signal.Signals) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self) -> None:
        await self._ended.wait()

    async def end(self, within_s: float, politely: bool = True) -> bool:
        """Have it end, by SIGKILL after ``within_s`` seconds; False: it did not even so."""
        for number in (signal.SIGTERM, signal.SIGKILL) if politely else (signal.SIGKILL,):
            self.send(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self.wait()
                    return True
        self.release()
        return False

    def idle(self) -> bool:
        """Whether it is stopped, or took next to no CPU time since the last call."""
        status = process_stat(self.pid)
        if status is None:
            return False
        before, self._cpu_ticks = self._cpu_ticks, status.cpu_ticks
        # Its watchdog's thread takes a tick now and then, however stuck all else is.
        return status.state in _STOPPED or (status.state == "S" and status.cpu_ticks <= before + 1)

    def release(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_end(self) -> None:
        try:
            result = os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOHANG)
            if result is None:
                return
            self.code = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        except ChildProcessError:
            # Its parent may not have waited for it yet: then its status can still be read.
            status = process_stat(self.pid)
            if status is not None and status.started == self.started and status.state in _DEAD:
                self.code = os.waitstatus_to_exitcode(status.status)
        self.release()
        self._ended.set()


def read_pid(path: Path) -> tuple[int, int] | None:
    """Process id and start time in the file; None: no such file, or it is not whole."""
    try:
        pid, started = map(int, path.read_text().split())
    except (OSError, ValueError):
        return None
    return (pid, started) if pid > 1 else None


async def end_leftovers(settings: Settings, devices: Collection[DeviceInfo], within_s: float = 3.0) -> list[int]:
    """End executors of this name's earlier daemons for devices that are gone; pids."""
    stem = re.escape(disk.safe_name(settings.node_name, 24))
    own = {pid_path(device.endpoint) for device in devices}
    ended = []
    for path in sorted(settings.socket_folder.glob("executor-*.pid")):
        if path in own or not re.fullmatch(rf"executor-{stem}-(?:cpu|gpu)\d+\.pid", path.name):
            continue
        if (process := ExecutorProcess.find(path)) is not None:
            await process.end(within_s)
            ended.append(process.pid)
        path.unlink(missing_ok=True)
    return ended
