"""The whole appliance on this machine, or some of its roles, until Ctrl-C.

Serving starts first, from what is on disk. The control plane is prepared and started beside it, and tried again until
it works; only a wrong setting ends the start. Nothing here imports Django, so that nothing of the control plane can
keep serving from starting.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from appliance import redis_server, secrets
from workers import descriptors, log
from workers.settings import Settings, SettingsError
from workers.trust import server
from workers.trust.authority import CertificateError

from . import messages, preconditions, proc, reserve, services
from .logfile import LogFile
from .preconditions import LEFTOVERS_S, StartError, check_devices, check_ports
from .processes import SupervisedService
from .roles import ALL, BoxRole, Roles, named, parse, serves_tls
from .supervisor import Supervisor

logger = log.get("up")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nereus up", description="Start the local appliance, until Ctrl-C.")
    parser.add_argument("--demo", action="store_true", help="register demo applications and drive a load")
    parser.add_argument(
        "--only",
        type=_roles,
        default=ALL,
        metavar="ROLE[,ROLE]",
        help="run these roles alone: control (console, REST, planning), gateway, node (default: all)",
    )
    given = parser.parse_args(arguments)
    try:
        values = Settings.from_environ()
        values.make_folders()
        up(values, given.demo, sys.stdout, given.only)
    except SettingsError as error:
        print("Settings that cannot be used:\n  " + "\n  ".join(error.problems), file=sys.stderr)
        return 1
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _roles(text: str) -> Roles:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def up(values: Settings, demo: bool, output: TextIO, roles: Roles = ALL) -> None:
    """Run this box's roles until a signal asks to stop. Raises StartError."""
    log.configure("supervisor", values.log_level)
    say = _printer(output)
    if demo and roles != ALL:
        raise StartError("--demo registers applications and sends them a load, which needs all roles: leave out --only")
    preconditions.check_packages(roles)
    with preconditions.locked(values.home):
        try:
            cpu_devices, division = preconditions.cpu_devices(values, roles, demo)
            values = dataclasses.replace(values, cpu_devices=cpu_devices)
            # Processes of a supervisor that was killed a moment ago are being ended by its guard.
            check_ports(values, LEFTOVERS_S, roles)
            if BoxRole.NODE in roles:
                check_devices(values)
            if serves_tls(values, roles):
                server.prepare(values)
        except (SettingsError, CertificateError) as error:
            raise StartError(str(error)) from None
        except OSError as error:
            # Each process that needs a certificate tries again to make it.
            say(f"Warning: the appliance's own certificate cannot be made: {error}")
        for warning in values.warnings:
            say(f"Warning: {warning}")
        if BoxRole.CONTROL in roles and not values.redis_url:
            program = redis_server.chosen()
            if program is None:
                say(f"Warning: {redis_server.MISSING}. Until then the console does not start.")
            elif program.hole:
                say(f"Warning: {program.hole} Bring the box's packages up to date.")
        if division:
            say(division)
        asyncio.run(_Appliance(values, demo, say, roles).run())


class _Appliance:
    def __init__(self, values: Settings, demo: bool, say: Callable[[str], None], roles: Roles):
        self._values, self._demo, self._say, self._roles = values, demo, say, roles
        self._started = time.monotonic()
        self._log = LogFile(_log_path(values.home))

    async def run(self) -> None:
        values, say = self._values, self._say
        if deleted := reserve.make_room(self._log.path.parent):
            say(f"Warning: the disk of {values.home} is full; deleted {', '.join(deleted)} to be able to start.")
        log.configure("supervisor", values.log_level, self._log.path)
        descriptors.raise_limit()
        proc.adopt_orphans()
        supervisor = Supervisor(values.socket_folder, say)
        supervisor.install_signals()
        supervisor.guard.start()
        _forget_last_run(values)
        if BoxRole.CONTROL in self._roles:
            try:
                secrets.make_credentials(values.home)
            except OSError as error:
                say(f"Warning: {values.home / secrets.CREDENTIALS} cannot be stored: {error}; serving starts without.")
        reporting = asyncio.create_task(self._start(supervisor))
        reporting.add_done_callback(self._start_ended)
        # Of another control plane than its own; joins to that are no news.
        members = self._roles if BoxRole.CONTROL not in self._roles else ()
        joining = [asyncio.create_task(messages.report_join(values, role, say)) for role in members]
        try:
            await supervisor.run(self._rotate)
        finally:
            for task in (reporting, *joining):
                task.cancel()
            say("Stopping.")
            began = time.monotonic()
            await supervisor.stop()
            _remove_sockets(values)
            say(f"Stopped in {time.monotonic() - began:.1f} s.")

    async def _start(self, supervisor: Supervisor) -> None:
        values, path, roles = self._values, self._log.path, self._roles
        self._say(f"Nereus starts{'' if roles == ALL else f' as {named(roles)}'}; its logs go to {path}")
        serving = services.data_plane(values, path, roles)
        supervisor.keep(serving)
        # Its modules are imported while the data plane's processes start.
        rest = services.control_plane(values, path) if BoxRole.CONTROL in roles else []
        supervisor.keep(rest)
        if self._demo:
            supervisor.keep(services.demo(path))
        if serving:
            await _all_up(serving)
            self._say(messages.serves(values, roles, self._elapsed))
        await _all_up(rest)
        self._say(messages.ready(values, roles, self._elapsed))
        if self._demo:
            await supervisor.services["load"].up.wait()
            self._say("The demo's load runs: a slow wave with a burst about every minute. Watch it in the console.")

    def _start_ended(self, starting: asyncio.Task) -> None:
        if not starting.cancelled() and starting.exception() is not None:
            # Services that serve by now go on.
            logger.error("start_failed", exc_info=starting.exception())
            self._say(f"Starting failed: {starting.exception()!r}; see {self._log.path}")

    @property
    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started:.1f} s"

    def _rotate(self) -> None:
        reserve.keep(self._log.path.parent)
        try:
            if self._log.rotate():
                logger.info("log_rotated")
        except OSError as error:
            logger.error("log_not_rotated", reason=str(error))


async def _all_up(group: Iterable[SupervisedService]) -> None:
    for service in group:
        await service.up.wait()


def _printer(output: TextIO) -> Callable[[str], None]:
    def say(text: str) -> None:
        # A terminal that hangs up must not keep the appliance from stopping in order.
        with contextlib.suppress(OSError, ValueError):
            print(text, file=output, flush=True)

    return say


def _log_path(home: Path) -> Path:
    folder = home / "logs"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StartError(f"{folder}: cannot be made: {error.strerror}") from None
    return folder / "nereus.log"


def _forget_last_run(values: Settings) -> None:
    for pattern in ("*.heartbeat", "*.link"):
        for path in values.socket_folder.glob(pattern):
            path.unlink(missing_ok=True)


def _remove_sockets(values: Settings) -> None:
    for path in values.socket_folder.glob("*.sock"):
        path.unlink(missing_ok=True)
    if values.socket_folder != values.home / "run":
        shutil.rmtree(values.socket_folder, ignore_errors=True)
