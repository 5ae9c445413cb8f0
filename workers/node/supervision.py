"""Supervision of one executor process per device.

It is started, connected over its socket, watched, and restarted when it dies.

An executor is healthy once it answers on its socket, and as long as it goes on reporting (every second). It outlives a
daemon that is killed, and the next daemon takes it over (:mod:`.executor_process`); a daemon that is stopped ends it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from workers.protocol.run_record import blamed, record_path

from .. import disk, identity, log
from ..protocol import endings, frames
from ..protocol.frame_connection import FrameConnection, connect
from ..protocol.specs import DeviceInfo
from . import environment
from .backoff import RestartBackoff, RestartTiming
from .executor_process import ExecutorProcess, pid_path, read_pid
from .losses import Loss, how_it_ended, oom_kills

#: how often the kernel's count of processes killed for memory is read while the executor lives
OOM_EVERY_S = 5.0
#: how often a silent executor is looked at
IDLE_EVERY_S = 1.0
COMMAND = (sys.executable, "-m", "workers.executor")


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
        self._fault = endings.fault_path(device.endpoint)
        self._named = pid_path(device.endpoint)
        self._environment = environment.of_executor()
        self._expected = identity.of(device, self._environment)
        self._process: ExecutorProcess | None = None
        self._reattaching = False
        self._unfit = ""
        self._connection: FrameConnection | None = None
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
        return self._process.pid if self._process is not None and self._process.running else None

    @property
    def up(self) -> bool:
        return self._connection is not None and self._connection.open and self._answering.is_set()

    @property
    def crash_looping(self) -> bool:
        return self._backoff.crash_looping

    @property
    def last_failure(self) -> str:
        """The end of the last process, in words; empty before the first end."""
        return "" if self.last is None else self.last.reason

    def send(self, frame: frames.Frame) -> bool:
        """Send ``frame``; False when there is no executor to take it."""
        return self.up and self._connection.send(frame)

    def replace(self, reason: str) -> None:
        """End the running process, politely; another one is started in its place."""
        self._unfit = reason

    async def run(self) -> None:
        """Keep an executor running until cancelled; then SIGTERM, and SIGKILL if need be."""
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
            if self.pid is not None:
                self.last = Loss("stopped by its node")
                await self._end()
                self._publish_ending()

    # --- one life ---------------------------------------------------------------------------------------------------

    async def _life(self) -> float:
        """One process, started or found, to its end; the seconds for which it answered."""
        self._answering.clear()
        self._up_since, self._unfit = None, ""
        self._oom_kills = oom_kills()
        self._process = ExecutorProcess.find(self._named)
        self._reattaching = self._process is not None
        if self._process is None:
            self._died_unseen()
            try:
                self._start()
            except OSError as error:
                self.last = Loss(f"cannot be started: {error}")
                return 0.0
        else:
            self._log.info("executor_found", pid=self._process.pid)
        ended = asyncio.create_task(self._process.wait())
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((ended, watching), return_when=asyncio.FIRST_COMPLETED)
            self.last = self._how_it_ended() if ended.done() else watching.result()
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

    def _how_it_ended(self) -> Loss:
        answered = self._up_since is not None or not self._process.child
        return how_it_ended(self._process.code, answered, oom_kills() > self._oom_kills, self._fault)

    def _died_unseen(self) -> None:
        """Report an executor that crashed while there was no daemon."""
        if read_pid(self._named) is None:
            return
        self._named.unlink(missing_ok=True)
        loss = how_it_ended(None, True, False, self._fault)
        if loss.crashed:
            self.last = loss.blaming(blamed(self._record))
            self._log.warning("executor_lost", reason=self.last_failure)
            self._guard(self._on_lost, self.last)

    def _publish_ending(self) -> None:
        """Tell gateways, which decide by that on the queries that were under way."""
        ending = endings.Ending(self._process.pid, self.last.crashed, self.last.reason)
        try:
            endings.write(self.device.endpoint, ending)
        except OSError as error:
            self._log.error("ending_not_written", reason=str(error))

    def _start(self) -> None:
        # A socket left by a killed executor would be connected to in vain.
        self._socket.unlink(missing_ok=True)
        # An earlier process's run is no cause of this one's end.
        self._record.unlink(missing_ok=True)
        self._fault.unlink(missing_ok=True)
        description = self._socket.with_suffix(".json")
        disk.write_private(description, msgspec.json.encode(self.device))
        command = (*self._command, "--device", str(description))
        cores = self.device.cores if self.device.kind == "cpu" else ()
        self._process = ExecutorProcess.start(command, self._environment, cores)
        self.starts += 1
        try:
            self._process.write(self._named)
        except OSError as error:
            # It serves all the same; only a killed daemon's successor would not find it.
            self._log.error("executor_not_named", reason=str(error))
        self._log.info("executor_started", pid=self._process.pid, start=self.starts)

    async def _watch(self) -> Loss:
        """Keep a connection to the running process; returns why it has to be replaced."""
        timing = self._timing
        before = looked = counted = time.monotonic()
        answer = timing.reattach if self._reattaching else timing.answer
        deadline, reported, silent_s = looked + answer, self._reported_at, 0.0
        while True:
            if self._connection is None or not self._connection.open:
                await self._connect()
            now = time.monotonic()
            # A box that slept must not blame the executor: no look counts for more than a second.
            silent_s = silent_s + min(now - before, 1.0) if reported == self._reported_at else 0.0
            before, reported = now, self._reported_at
            if self._unfit:
                return Loss(self._unfit)
            if self._answering.is_set():
                if silent_s > timing.silent:
                    return Loss(f"sent no report for {timing.silent:g} s", crashed=True)
                if now - looked >= IDLE_EVERY_S:
                    looked, idle = now, self._process.idle()
                    if idle and silent_s > timing.hung:
                        return Loss(f"hung: sent no report for {timing.hung:g} s and does nothing", crashed=True)
                deadline = now + answer
            elif now > deadline:
                return Loss(f"did not answer on its socket within {answer:g} s")
            if now - counted > OOM_EVERY_S:
                counted, self._oom_kills = now, oom_kills()
            await asyncio.sleep(0.05 if not self._answering.is_set() else 0.25)

    async def _connect(self) -> None:
        self._answering.clear()
        try:
            connection = await connect(
                self.device.endpoint,
                lambda: FrameConnection(frames.FromExecutor, self._received, self._closed),
            )
        except OSError:
            return
        self._connection = connection
        connection.send(frames.Hello(role="node", name=self._node))

    def _received(self, connection: FrameConnection, frame: frames.Frame, _body: memoryview) -> None:
        self._reported_at = time.monotonic()
        if connection is not self._connection and self._connection is not None and self._connection.open:
            return  # left over from an earlier connection
        self._connection = connection
        if self._reattaching:
            self._unfit = self._unfit or self._unfitness(frame)
            if self._unfit:
                return
            self._reattaching = False
            self._log.info("executor_reattached", pid=self.pid)
        if not self._answering.is_set():
            self._answering.set()
            self._log.info("executor_up", pid=self.pid)
            if self._up_since is None:
                self._up_since = self._reported_at
            else:
                self._guard(self._on_lost, Loss("its connection was lost"))
            self._guard(self._on_up)
        if not isinstance(frame, frames.ExecutorIdentity):
            self._guard(self._on_frame, frame)

    def _unfitness(self, frame: frames.Frame) -> str:
        """Why an earlier daemon's executor cannot stay, by its first frame; or empty."""
        if not isinstance(frame, frames.ExecutorIdentity):
            different = "another protocol"
        else:
            different = identity.difference(self._expected, frame)
        return f"was started by an earlier daemon and has {different}" if different else ""

    def _closed(self, connection: FrameConnection, error: Exception | None) -> None:
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
        if process is None:
            return
        # One that hangs would not act on SIGTERM, and devices wait for its place.
        if not await process.end(self._timing.term, politely=self.last is None or not self.last.crashed):
            # A driver that does not return from the kernel keeps it; nothing else can be done about it here.
            self._log.error("executor_unkillable", pid=process.pid)
        self._named.unlink(missing_ok=True)
