"""``manage.py up``: the whole appliance on this machine, until Ctrl-C."""

from __future__ import annotations

import queue
import shutil
import sys
import threading
import time
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from appliance.local.processes import SupervisedService
from appliance.local.services import check_devices
from appliance.local.supervisor import HomeLock, StartError, Stopped, Supervisor, check_ports
from workers import log
from workers.settings import Settings, SettingsError

#: the log file is moved aside at a start when it has grown beyond this
LOG_BYTES = 50 * 1024 * 1024


class Command(BaseCommand):
    help = "Start the local appliance: Redis, web, Celery, node, gateway; with --demo, demo applications and load too."
    requires_system_checks = "__all__"
    requires_migrations_checks = False

    def add_arguments(self, parser) -> None:
        parser.add_argument("--demo", action="store_true", help="register demo applications and drive a load")

    def handle(self, *args, demo: bool = False, **options) -> None:
        values: Settings = settings.NEREUS
        lock = HomeLock(values.home)
        supervisor = Supervisor()
        try:
            lock.take()
            check_ports(values)
            check_devices(values)
        except (StartError, SettingsError) as error:
            raise CommandError(str(error)) from None
        log_path = _log_file(values.home)
        log.configure("supervisor", values.log_level, log_path)
        for warning in values.warnings:
            self.say(f"Warning: {warning}")
        supervisor.install_signals()
        try:
            due = self._start(supervisor, values, log_path, demo)
            supervisor.watch(lambda: self._start_due(supervisor, due))
        except Stopped:
            pass
        except StartError as error:
            raise CommandError(str(error)) from None
        finally:
            self.say("Stopping.")
            started = time.monotonic()
            supervisor.stop()
            _remove_sockets(values)
            lock.release()
            self.say(f"Stopped in {time.monotonic() - started:.1f} s.")

    def say(self, text: str) -> None:
        # A terminal that hangs up must not keep the appliance from stopping in order.
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except OSError:
            pass

    def _start(
        self, supervisor: Supervisor, values: Settings, log_path: Path, demo: bool
    ) -> queue.SimpleQueue[SupervisedService]:
        """Start everything; returns where services appear that are to be started later."""
        from appliance.local.firststart import prepare
        from appliance.local.services import load_service, redis_service, services

        started = time.monotonic()
        supervisor.guard.start()
        _forget_totals(values)
        if not values.redis_url:
            redis = redis_service(values, log_path)
            supervisor.start(redis)
            supervisor.wait_ready(redis)
        credentials = prepare()
        self.say(f"Nereus starts; its logs go to {log_path}")
        rest = services(values, credentials, log_path)
        # Started together, since each spends its first second importing; then waited for in order.
        for service in rest:
            supervisor.start(service)
        for service in rest:
            supervisor.wait_ready(service)
        self.say(
            f"Ready after {time.monotonic() - started:.1f} s.\n"
            f"  Console    {values.console.url}/  user {credentials['console_user']}  "
            f"password {credentials['console_password']}\n"
            f"  Inference  {values.http.url}/v2  (Open Inference Protocol), gRPC {values.grpc}\n"
            f"  Keys       {values.home / 'credentials.json'}\n"
            "Ctrl-C stops everything."
        )
        due: queue.SimpleQueue[SupervisedService] = queue.SimpleQueue()
        if demo:
            load = load_service(values, log_path)
            threading.Thread(target=self._demo, args=(supervisor, values, credentials, load, due), daemon=True).start()
        return due

    def _start_due(self, supervisor: Supervisor, due: queue.SimpleQueue[SupervisedService]) -> None:
        """In the main thread: the kernel ends a child when the *thread* that started it ends."""
        if not due.empty():
            supervisor.start(due.get())
            self.say("The demo's load runs: a slow wave with a burst about every minute. Watch it in the console.")

    def _demo(self, supervisor: Supervisor, values: Settings, credentials, load: SupervisedService, due) -> None:
        """Beside the watch, because profiling the first time takes a while and services may die meanwhile."""
        from appliance.demo import register

        try:
            register.register(values.console.url, credentials["api_token"], self.say)
            register.wait_ready(values.console.url, credentials["api_token"], timeout_s=900)
        except Exception as error:
            if not supervisor.stopping:
                self.say(f"The demo could not be set up: {error}")
            return
        due.put(load)


def _log_file(home: Path) -> Path:
    folder = home / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "nereus.log"
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(folder / "nereus.log.1")
    return path


def _forget_totals(values: Settings) -> None:
    """Gateways' totals outlive a gateway that dies, not the appliance."""
    for path in values.socket_folder.glob("gateway-*.totals"):
        path.unlink(missing_ok=True)


def _remove_sockets(values: Settings) -> None:
    """Sockets of processes that had to be killed; the folder is this appliance's alone."""
    for path in values.socket_folder.glob("*.sock"):
        path.unlink(missing_ok=True)
    if values.socket_folder != values.home / "run":
        shutil.rmtree(values.socket_folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit("run: python manage.py up")
