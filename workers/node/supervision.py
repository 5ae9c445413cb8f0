"""One executor process per device: started, spoken to over its socket, watched, and started again when it dies.

An executor is healthy once it answers on its socket, and as long as it goes on reporting (every second). It stays
in the daemon's process group, and the kernel kills it when the daemon dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from workers.protocol.run_record import blamed, record_path

from .. import disk, log
from ..protocol import endings, frames
from ..protocol.specs import DeviceInfo
from .backoff import RestartBackoff, RestartTiming
from .losses import Loss, how_it_ended, oom_kills

#: how often the kernel's count of processes killed for memory is read while the executor lives
OOM_EVERY_S = 5.0
COMMAND = (sys.executable, "-m", "workers.executor")
_PR_SET_PDEATHSIG = 1
# Loaded here, not between fork and exec, where loading could deadlock.
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class ExecutorSupervisor:
    """Supervises one device's executor for as long as :meth:`run` runs.

    Args:
        device: handed to the process as a JSON file next to its socket.
        node: this node's name, for the Hello.
        on_frame: called with each frame that the executor sends.
        on_up: called each time that a fresh executor (or a fresh connection to it) answers.
        on_lost: called each time that it is lost.
        command: the executor's command line, without ``--device FILE``.
    """

    def __init__(
        self,
        device: DeviceInfo,
        node: str,
        *,
        on_frame: Callable[[frames.Frame], None],
        on_up: Callable[[], None],
        on_lost: Callable[[Loss], None],
        command: Sequence[str] = COMMAND,
        timing: RestartTiming | None = None,
    ):
        self.device = device
        self._node = node
        self._on_frame, self._on_up, self._on_lost = on_frame, on_up, on_lost
        self._command = tuple(command)
        self._timing = timing or RestartTiming()
        self._backoff = RestartBackoff(self._timing)
        self._socket = Path(device.endpoint.removeprefix("unix:"))
        self._record = record_path(device.endpoint)
        self._process: asyncio.subprocess.Process | None = None
        self._connection: frames.FrameConnection | None = None
        self._reported_at = 0.0
        self._up_since: float | None = None
        self._answering = asyncio.Event()
        self._oom_kills = 0
        self._log = log.get("supervision").bind(device=device.id)
        self.starts = 0
        """how often the process was started"""
        self.last: Loss | None = None
        """how the last process ended; None before the first end"""

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    @property
    def up(self) -> bool:
        """Answers on its socket."""
        return self._connection is not None and self._connection.open and self._answering.is_set()

    @property
    def crash_looping(self) -> bool:
        return self._backoff.crash_looping

    @property
    def last_failure(self) -> str:
        """How the last process ended, in words; empty before the first end."""
        return "" if self.last is None else self.last.reason

    def send(self, frame: frames.Frame) -> bool:
        """Send ``frame``; False when there is no executor to take it."""
        return self.up and self._connection.send(frame)

    async def run(self) -> None:
        """Keep an executor running until cancelled, then end it (SIGTERM, after ``timing.term`` SIGKILL)."""
        try:
            while True:
                healthy_s = await self._life()
                pause = self._backoff.died(healthy_s)
                write = self._log.error if self.crash_looping else self._log.warning
                write("executor_lost", reason=self.last_failure, deaths=self._backoff.deaths, restart_s=round(pause, 2))
                self._on_lost(self.last)
                await asyncio.sleep(pause)
        finally:
            self._drop_connection()
            running = self.pid is not None
            await self._end()
            if running:
                self.last = Loss("stopped by its node")
                self._publish_ending()

    # --- one life ---------------------------------------------------------------------------------------------------

    async def _life(self) -> float:
        """One process from start to end; returns how long it answered, in seconds."""
        try:
            await self._start()
        except OSError as error:
            self.last = Loss(f"cannot be started: {error}")
            return 0.0
        ended = asyncio.create_task(self._process.wait())
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((ended, watching), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                killed = oom_kills() > self._oom_kills
                self.last = how_it_ended(self._process.returncode, self._up_since is not None, killed)
            else:
                self.last = watching.result()
            self._publish_ending()
            healthy_s = 0.0 if self._up_since is None else time.monotonic() - self._up_since
        finally:
            watching.cancel()
            ended.cancel()
            self._drop_connection()
        await self._end()
        if self.last.crashed:
            self.last = self.last.blaming(blamed(self._record))
        return healthy_s

    def _publish_ending(self) -> None:
        """For gateways, which decide by it what becomes of the queries that were under way."""
        ending = endings.Ending(self._process.pid, self.last.crashed, self.last.reason)
        try:
            endings.write(self.device.endpoint, ending)
        except OSError as error:
            self._log.error("ending_not_written", reason=str(error))

    async def _start(self) -> None:
        # A socket left by a killed executor would be connected to in vain.
        self._socket.unlink(missing_ok=True)
        # What an earlier process ran is no cause of this one's end.
        self._record.unlink(missing_ok=True)
        description = self._socket.with_suffix(".json")
        disk.write_private(description, msgspec.json.encode(self.device))
        parent = os.getpid()
        self._answering.clear()
        self._up_since = None
        self._oom_kills = oom_kills()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            "--device",
            str(description),
            stdin=asyncio.subprocess.DEVNULL,
            preexec_fn=lambda: _die_with(parent),
            env=_environment(),
        )
        self.starts += 1
        self._log.info("executor_started", pid=self._process.pid, start=self.starts)

    async def _watch(self) -> Loss:
        """Keep a connection to the running process; returns why it has to be replaced."""
        timing = self._timing
        deadline = counted = time.monotonic()
        deadline += timing.answer
        while True:
            if self._connection is None or not self._connection.open:
                await self._connect()
            now = time.monotonic()
            if self._answering.is_set():
                if now - self._reported_at > timing.silent:
                    return Loss(f"sent no report for {timing.silent:g} s", crashed=True)
                deadline = now + timing.answer
            elif now > deadline:
                return Loss(f"did not answer on its socket within {timing.answer:g} s")
            if now - counted > OOM_EVERY_S:
                counted, self._oom_kills = now, oom_kills()
            await asyncio.sleep(0.05 if not self._answering.is_set() else 0.25)

    async def _connect(self) -> None:
        self._answering.clear()
        try:
            connection = await frames.connect(
                self.device.endpoint, lambda: frames.FrameConnection(frames.FromExecutor, self._received, self._closed)
            )
        except OSError:
            return
        self._connection = connection
        connection.send(frames.Hello(role="node", name=self._node))

    def _received(self, connection: frames.FrameConnection, frame: frames.Frame, _body: memoryview) -> None:
        self._reported_at = time.monotonic()
        if connection is not self._connection and self._connection is not None and self._connection.open:
            return  # left over from an earlier connection
        self._connection = connection
        if not self._answering.is_set():
            self._answering.set()
            self._log.info("executor_up", pid=self.pid)
            if self._up_since is None:
                self._up_since = self._reported_at
            else:
                self._guard(self._on_lost, Loss("its connection was lost"))
            self._guard(self._on_up)
        self._guard(self._on_frame, frame)

    def _closed(self, connection: frames.FrameConnection, error: Exception | None) -> None:
        if connection is self._connection:
            self._connection = None
            if self._answering.is_set():
                self._answering.clear()
                if error is not None:
                    self._log.warning("executor_connection_lost", reason=str(error))

    def _guard(self, callback: Callable, *args) -> None:
        # An exception would close the connection, although the executor did nothing wrong.
        try:
            callback(*args)
        except Exception:
            self._log.exception("callback_failed")

    # --- the end ----------------------------------------------------------------------------------------------------

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._answering.clear()
        if connection is not None:
            connection.close()

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._timing.term)
        except TimeoutError:
            self._log.warning("executor_killed", pid=process.pid, reason=f"still there after {self._timing.term:g} s")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _environment() -> dict[str, str]:
    # gpu_index counts in CUDA's PCI order (see gpus.py). A process that runs uploaded models has no use for the token.
    kept = {name: value for name, value in os.environ.items() if name != "NEREUS_JOIN_TOKEN"}
    return kept | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _die_with(parent: int) -> None:
    """In the new process: be killed when the daemon dies, also when it died before this line."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
