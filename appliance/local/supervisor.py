"""The local appliance's supervisor: starts, restarts and stops services.

It restarts those that die or hang, and stops all in order. Each service has a task of its own
(:meth:`Supervisor._keep`), so that none waits for another unless it says so. Pauses and patience are counted by the
monotonic clock and in looks that took place: neither a step of the wall clock nor a machine that was asleep makes a
service look hung.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from workers import log
from workers.node.backoff import RestartBackoff, RestartTiming

from . import proc
from .guard import leftover_executors, signal_all
from .probes import ask
from .processes import Guard, SupervisedService
from .services import stop_order

logger = log.get("supervisor")

#: pauses before restarts
RESTARTS = RestartTiming(first=0.5, longest=30.0, steady=10.0, limit=8)
#: seconds after which a service that runs but is not ready is reported
NOT_READY_S = 10.0
#: failed starts in a row after which a service's repair is tried
REPAIR_AFTER = 3
#: looks in a row at a stopped process after which it is replaced, also where a heartbeat has longer
STOPPED_MISSES = 3
#: looks that may be excused in a row for each that counts
EXCUSED = 10
EXECUTORS_STOP_S = 1.0
_POLL_S = 0.1


class Supervisor:
    """Keeps services running until asked to stop.

    Args:
        folder: where executors' process files are.
        report: takes a line for the operator.
    """

    def __init__(self, folder: Path, report: Callable[[str], None] = print) -> None:
        self.guard = Guard(folder)
        self.services: dict[str, SupervisedService] = {}
        self._folder = folder
        self._report = report
        self._keepers: list[asyncio.Task] = []
        self._stop = asyncio.Event()

    def install_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.ask_to_stop)

    def ask_to_stop(self) -> None:
        self._stop.set()

    def keep(self, services: Iterable[SupervisedService]) -> None:
        """Start services as those before them are ready, and restart them."""
        for service in services:
            self.services[service.name] = service
            self._keepers.append(asyncio.create_task(self._keep(service), name=service.name))

    async def run(self, each_second: Callable[[], None] = lambda: None) -> None:
        while not self._stop.is_set():
            self.guard.start()
            self._reap()
            each_second()
            for keeper in self._keepers:
                if keeper.done() and not keeper.cancelled():
                    keeper.result()
            try:
                await asyncio.wait_for(self._stop.wait(), 1.0)
            except TimeoutError:
                pass

    def _reap(self) -> None:
        if any(service.starting for service in self.services.values()):
            # There may be a child of ours whose number is not known yet.
            return
        own = {service.process.pid for service in self.services.values() if service.process is not None}
        for pid in proc.reap_orphans(own | {self.guard.pid}):
            logger.info("orphan_ended", pid=pid)

    # --- one service --------------------------------------------------------------------------------------------------

    async def _keep(self, service: SupervisedService) -> None:
        for name in service.after:
            await self.services[name].up.wait()
        backoff = RestartBackoff(RESTARTS)
        event, reported = "service_started", ""
        while True:
            alive_since: list[float] = []
            try:
                await service.start(self.guard)
                logger.info(event, service=service.name, pid=service.process.pid)
                reason = await self._life(service, alive_since, backoff.deaths)
            except OSError as error:
                reason = f"cannot be started: {error}"
            await service.kill(self.guard)
            if not reason:
                service.up.set()
                return
            service.up.clear()
            # A service that runs once is of no use before it has ended.
            useful_s = time.monotonic() - alive_since[0] if alive_since and not service.once else 0.0
            pause = backoff.died(useful_s)
            logger.warning("service_failed", service=service.name, reason=reason, restart_in_s=pause)
            if backoff.deaths == REPAIR_AFTER and service.repair is not None and (note := service.repair()):
                logger.warning("service_repaired", service=service.name, note=note)
                self._report(f"{service.name}: {note}.")
            if (backoff.deaths > 1 or service.once) and reason != reported:
                self._report(f"{service.name}: {reason}. It is tried again, at least every {RESTARTS.longest:g} s.")
                reported = reason
            event = "service_restarted"
            await asyncio.sleep(pause)

    async def _life(self, service: SupervisedService, alive_since: list[float], failures: int) -> str:
        """Follow a service to its end; why it has to start again, empty: it is done."""
        ended = asyncio.create_task(service.process.wait())
        watching = asyncio.create_task(self._watch(service, alive_since, failures))
        lines = asyncio.create_task(self._lines(service)) if service.once else None
        try:
            await asyncio.wait((ended, watching), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return watching.result()
            said = await lines if lines is not None else ""
            if service.once and service.process.returncode == 0:
                return ""
            return said or f"ended with status {service.process.returncode}; see {service.log}"
        finally:
            for task in (ended, watching, lines):
                if task is not None:
                    task.cancel()

    async def _lines(self, service: SupervisedService) -> str:
        """Report each line of a service, but return the last one of one that fails."""
        last = ""
        async for line in service.process.stdout:
            if last:
                self._report(last)
            last = line.decode(errors="replace").strip()
        if await service.process.wait() == 0 and last:
            self._report(last)
        return last.rstrip(".")

    async def _watch(self, service: SupervisedService, alive_since: list[float], failures: int) -> str:
        """Until it must be replaced; returns why."""
        if service.alive is not None and service.alive.from_start:
            patience = service.ready_s * 2 ** min(failures, 5)
            deadline = time.monotonic() + patience
            while problem := await ask(service.alive.probe, service.alive.timeout_s):
                if time.monotonic() > deadline:
                    return f"did not answer within {patience:g} s of its start ({problem}); see {service.log}"
                await asyncio.sleep(_POLL_S)
        alive_since.append(time.monotonic())
        readying = asyncio.create_task(self._get_ready(service))
        try:
            return await self._until_hung(service)
        finally:
            readying.cancel()

    async def _get_ready(self, service: SupervisedService) -> None:
        if service.once:
            return
        reported, asked = "", 0
        while service.ready is not None and (problem := await ask(service.ready, 5.0)):
            asked += 1
            if asked * _POLL_S * 5 > NOT_READY_S and problem != reported:
                self._report(f"{service.name} runs, but is not ready: {problem}")
                reported = problem
            await asyncio.sleep(_POLL_S * 5)
        service.up.set()

    async def _until_hung(self, service: SupervisedService) -> str:
        """Look again and again; returns what the last of too many looks in vain found."""
        alive, pid = service.alive, service.process.pid
        every_s = 2.0 if alive is None else alive.every_s
        timeout_s = 2.0 if alive is None else alive.timeout_s
        missed = excused = 0
        while True:
            await asyncio.sleep(every_s)
            began, waited = time.monotonic(), proc.waited_s(pid)
            limit = STOPPED_MISSES if alive is None else alive.misses
            if proc.state(pid) == "T":
                problem, limit = "its process is stopped", STOPPED_MISSES
            else:
                problem = None if alive is None else await ask(alive.probe, timeout_s)
            if problem is None:
                missed = excused = 0
                continue
            took = time.monotonic() - began
            starved = proc.waited_s(pid) - waited > took / 2 > 0.05 or proc.state(pid) == "D"
            # A look that took longer than it may was not judged by a supervisor that ran all the time.
            if (starved or took > 1.5 * timeout_s + 0.5) and excused < EXCUSED * limit:
                excused += 1
                continue
            missed += 1
            if missed >= limit:
                return f"hangs: {problem}, {missed} times in a row"

    # --- the end ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for group in stop_order(list(self.services.values())):
            await asyncio.gather(*(service.stop(self.guard) for service in group))
            for service in group:
                if service.process is not None and not service.once:
                    logger.info("service_stopped", service=service.name, status=service.process.returncode)
        await self._stop_executors()
        self.guard.stop()

    async def _stop_executors(self) -> None:
        signal_all(leftover_executors(self._folder), signal.SIGTERM)
        deadline = time.monotonic() + EXECUTORS_STOP_S
        while (left := leftover_executors(self._folder)) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        signal_all(left, signal.SIGKILL)
        self._reap()
