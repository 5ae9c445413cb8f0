"""The processes of the local appliance: what each waits for, how it is watched.

The data plane (node, gateway) waits for nothing. The control plane is prepared and started beside it, and stands behind
it for the processor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance import redis_server
from workers.settings import Settings

from . import probes
from .probes import Probe
from .processes import Liveness, SupervisedService
from .roles import ALL, BoxRole, Roles

#: how far the control plane stands behind serving for the processor
NICE = 5
#: how many times as long a heartbeat of the simulation worker may take, which gets only what all else leaves
SIMULATION_PATIENCE = 5
#: one core is one thread's: math libraries must not spread over cores that devices own
SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: Django's checks, which load all pages and the API, are run once by "web" and not by each worker again
CHECKED = {"CELERY_SKIP_CHECKS": "1"}
#: seconds between two looks at a heartbeat, and looks without one after which a worker is restarted
HEARTBEAT_LOOK_S, HEARTBEAT_MISSES = 5.0, 12

#: far above what a quarter of an hour of statistics takes, and far below what would press models out of a small box
REDIS_BYTES = 256 * 2**20


def _python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


# --- data plane -------------------------------------------------------------------------------------------------------


def data_plane(values: Settings, log: Path, roles: Roles = ALL) -> list[SupervisedService]:
    """Return node daemon and gateway, as far as the box has these roles.

    They serve from what is on disk. The times to stop all services, one after the other, add up to less than the 15 s
    that an operator is promised, even if nothing obeys.
    """

    def environment() -> Mapping[str, str]:
        # The supervisor's choice for "auto".
        return {"NEREUS_CPU_DEVICES": values.cpu_devices} | SINGLE

    found = [_node(values, environment, log)] if BoxRole.NODE in roles else []
    if BoxRole.GATEWAY in roles:
        found += [_gateway(values, number, environment, log) for number in range(1, values.gateways + 1)]
    return found


def _node(values: Settings, environment: Callable[[], Mapping[str, str]], log: Path) -> SupervisedService:
    return SupervisedService(
        "node",
        _python("-m", "workers.node"),
        environment=environment,
        alive=Liveness(probes.http(values.node_http.url + "/health"), timeout_s=5.0),
        stop_s=3.5,
        log=log,
    )


def _answers_quickly(path: Path) -> Liveness:
    """A gateway that hangs must be back within 5 s."""
    return Liveness(probes.gateway(path), every_s=0.3, timeout_s=0.8)


def _gateway(
    values: Settings, number: int, environment: Callable[[], Mapping[str, str]], log: Path
) -> SupervisedService:
    return SupervisedService(
        "gateway" if number == 1 else f"gateway-{number}",
        _python("-m", "workers.gateway", "--number", str(number)),
        environment=environment,
        alive=_answers_quickly(values.gateway_socket(number)),
        stop_s=3.5,
        log=log,
    )


# --- control plane ----------------------------------------------------------------------------------------------------


def control_plane(values: Settings, log: Path) -> list[SupervisedService]:
    needed = () if values.redis_url else ("redis",)
    prepare = SupervisedService(
        "prepare",
        _python("-m", "appliance", "prepare"),
        environment=lambda: SINGLE,
        nice=NICE,
        stop_s=2,
        once=True,
        after=needed,
        log=log,
    )
    web = SupervisedService(
        "web",
        _python("-m", "gunicorn", "-c", "python:appliance.local.web", "appliance.asgi:application"),
        environment=lambda: SINGLE,
        alive=Liveness(probes.http(values.console.url + "/health/live"), timeout_s=5.0, misses=4),
        ready=probes.http(values.console.url + "/health/"),
        stop_s=3,
        nice=NICE,
        after=("prepare",),
        log=log,
    )
    redis = [] if values.redis_url else [_redis(values, log)]
    return [*redis, prepare, web, *_celery(values, log)]


def _redis(values: Settings, log: Path) -> SupervisedService:
    path, snapshot = values.socket_folder / "redis.sock", values.home / "redis.rdb"

    def repair() -> str | None:
        try:
            snapshot.replace(snapshot.with_suffix(".unusable"))
        except OSError:
            return None
        return f"it starts without {snapshot}, now {snapshot.stem}.unusable; statistics of the last minutes are lost"

    return SupervisedService(
        name="redis",
        command=[
            # Where it is missing it may be installed meanwhile.
            redis_server.executable() or "redis-server",
            *("--port", "0"),
            *("--unixsocket", str(path)),
            *("--unixsocketperm", "600"),
            *("--dir", str(values.home)),
            *("--dbfilename", snapshot.name),
            *("--save", "60", "1"),
            *("--appendonly", "no"),
            # A full disk or memory must not stop what reports live state. Keys with a time to live go first.
            *("--stop-writes-on-bgsave-error", "no"),
            *("--maxmemory", str(REDIS_BYTES)),
            *("--maxmemory-policy", "volatile-ttl"),
            *("--daemonize", "no"),
        ],
        alive=Liveness(probes.redis(path)),
        ready_s=20,
        stop_s=1.5,
        repair=repair,
        log=log,
    )


def _celery(values: Settings, log: Path) -> list[SupervisedService]:
    """The workers of all queues; that of ``control`` sends the periodic tasks."""
    celery = _python("-m", "appliance.local.lean_celery")

    def worker(queue: str, *pool: str) -> list[str]:
        # Its heartbeats come in a queue of this home.
        queues = f"{queue},{queue}.{values.instance}"
        return ["-Q", queues, "-n", f"{queue}@nereus", "--loglevel", values.log_level, "--pool", *pool]

    commands = {
        "celery": worker("control", "threads", "-c", "2"),
        # One task at a time; a lease makes it one solve at a time where there are several workers.
        "planning": worker("planning", "solo"),
        "simulation": worker("simulation", "solo"),
    }
    # A heartbeat waits until a solve is over, which may take somewhat longer than its limit.
    misses = HEARTBEAT_MISSES + math.ceil(4 * values.solve_s / HEARTBEAT_LOOK_S)
    return [
        SupervisedService(
            name,
            [*celery, *command],
            environment=lambda: SINGLE | CHECKED,
            alive=Liveness(
                _heartbeat(values, name),
                every_s=HEARTBEAT_LOOK_S,
                timeout_s=5.0,
                misses=misses * SIMULATION_PATIENCE if name == "simulation" else misses,
                from_start=False,
            ),
            stop_s=2,
            nice=NICE,
            after=("prepare",),
            log=log,
        )
        for name, command in commands.items()
    ]


def _heartbeat(values: Settings, name: str) -> Probe:
    """A heartbeat, which is not to be expected while the private Redis is away."""
    beats = probes.heartbeat(values.heartbeat(name))
    redis = None if values.redis_url else probes.redis(values.socket_folder / "redis.sock")

    async def probe() -> str | None:
        if redis is not None:
            try:
                if await redis() is not None:
                    return None
            except OSError:
                return None
        return await beats()

    return probe


# --- demo -------------------------------------------------------------------------------------------------------------


def demo(log: Path) -> list[SupervisedService]:
    register = SupervisedService(
        "register",
        _python("-m", "appliance.demo.register"),
        environment=lambda: SINGLE,
        nice=NICE,
        stop_s=1,
        once=True,
        after=("web",),
        log=log,
    )
    load = SupervisedService(
        "load",
        _python("-m", "appliance.demo.load"),
        environment=lambda: {"OMP_NUM_THREADS": "1"},
        stop_s=1,
        after=("register",),
        log=log,
    )
    return [register, load]


def stop_order(running: list[SupervisedService]) -> list[list[SupervisedService]]:
    """Groups of services to stop one after the other: clients before servers."""
    order = [
        ["load", "register"],
        ["gateway"],
        ["node"],
        ["celery", "planning", "simulation"],
        ["web", "prepare"],
        ["redis"],
    ]
    return [[service for service in running if service.name.partition("-")[0] in names] for names in order]
