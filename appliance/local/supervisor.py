"""The local appliance's supervisor: one lock, ordered start, restarts, ordered stop."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from workers import log
from workers.settings import Address, Settings

from .processes import Guard, SupervisedService
from .services import stop_order

logger = log.get("supervisor")

RESTART_FIRST_S = 0.5
RESTART_MOST_S = 30.0
#: a service that ran for so long starts with a clean slate when it fails again
STEADY_S = 60.0


class StartError(Exception):
    """The appliance cannot start; the text says why and what to do."""


class Stopped(Exception):
    """A signal asked to stop while something was being waited for."""


class HomeLock:
    """Only one appliance at a time uses a home folder."""

    def __init__(self, home: Path):
        self._path = home / "lock"
        self._file = None

    def take(self) -> None:
        """Raises StartError when another appliance holds it."""
        self._file = self._path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            raise StartError(
                f"another appliance (process {self._file.read().strip() or 'unknown'}) runs in {self._path.parent}; "
                "stop it, or set NEREUS_HOME to another folder"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()


def check_ports(values: Settings) -> None:
    """Raises StartError naming every variable whose port somebody else listens on."""
    taken = [
        f"NEREUS_{name}={address}: another program listens there; set NEREUS_{name} to a free address"
        for name, address in (
            ("CONSOLE", values.console),
            ("HTTP", values.http),
            ("GRPC", values.grpc),
            ("NODE_HTTP", values.node_http),
        )
        if _taken(address)
    ]
    if taken:
        raise StartError("\n".join(taken))


def _taken(address: Address) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return True
    return False


class Supervisor:
    """Starts services in order, restarts those that die, stops all in order.

    Signals only set a flag (:meth:`ask_to_stop`), which every wait looks at.
    """

    def __init__(self) -> None:
        self.guard = Guard()
        self.services: list[SupervisedService] = []
        self._stop = threading.Event()

    def install_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self.ask_to_stop())

    def ask_to_stop(self) -> None:
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def start(self, service: SupervisedService) -> None:
        """Start one service without waiting for it."""
        service.start(self.guard)
        self.services.append(service)
        logger.info("service_started", service=service.name, pid=service.process.pid)

    def wait_ready(self, service: SupervisedService) -> None:
        """Raises StartError when it does not get ready, Stopped when asked to stop meanwhile."""
        deadline = time.monotonic() + service.ready_s
        while service.ready is not None and not service.ready():
            if not service.running:
                raise StartError(f"{service.name} ended with status {service.process.returncode}; see {service.log}")
            if time.monotonic() > deadline:
                raise StartError(f"{service.name} was not ready after {service.ready_s:g} s; see {service.log}")
            self.pause(0.1)

    def pause(self, seconds: float) -> None:
        """Wait; raises Stopped when asked to stop."""
        if self._stop.wait(seconds):
            raise Stopped

    def watch(self, each_turn: Callable[[], None] | None = None) -> None:
        """Until asked to stop, restart what dies: at once, then with growing pauses."""
        while not self._stop.wait(0.25):
            now = time.monotonic()
            for service in self.services:
                if service.running or not service.restart:
                    continue
                if service.restart_at == 0.0:
                    if now - service.started_at > STEADY_S:
                        service.failures = 0
                    pause = min(RESTART_FIRST_S * 2**service.failures, RESTART_MOST_S)
                    service.failures += 1
                    service.restart_at = now + pause
                    logger.warning(
                        "service_died", service=service.name, status=service.process.returncode, restart_in_s=pause
                    )
                elif now >= service.restart_at:
                    service.stop(self.guard)
                    service.restart_at = 0.0
                    service.start(self.guard)
                    logger.info("service_restarted", service=service.name, pid=service.process.pid)
            if each_turn is not None:
                each_turn()

    def stop(self) -> None:
        """Stop all services in order. A second signal changes nothing: each step is bounded."""
        for group in stop_order(self.services):
            threads = [threading.Thread(target=service.stop, args=(self.guard,)) for service in group]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for service in group:
                logger.info("service_stopped", service=service.name, status=service.process.returncode)
        self.guard.stop()
