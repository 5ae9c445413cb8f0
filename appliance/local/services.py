"""The processes of the local appliance: what each waits for, how it is watched.

The data plane (node, gateway) waits for nothing. The control plane is prepared and started beside it, and stands behind
it for the processor.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

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
    return [sys.executable, "-m", *arguments]


def data_plane(values: Settings, log: Path, roles: Roles = ALL) -> list[SupervisedService]:
    """Return node daemon and gateways, as far as the box has these roles.

    They serve from what is on disk. The times to stop all services, one after the other, add up to less than the 15 s
    that an operator is promised, even if nothing obeys.
    """

    def service(name: str, alive: Liveness, *command: str) -> SupervisedService:
        # The supervisor's choice for "auto".
        chosen = {"NEREUS_CPU_DEVICES": values.cpu_devices} | SINGLE
        return SupervisedService(name, _python(*command), environment=chosen, alive=alive, stop_s=3.5, log=log)

    found = []
    if BoxRole.NODE in roles:
        alive = Liveness(probes.http(values.node_http.url + "/health"), timeout_s=5.0)
        found.append(service("node", alive, "workers.node"))
    for number in range(1, values.gateways + 1) if BoxRole.GATEWAY in roles else ():
        # One that hangs must be back within 5 s.
        alive = Liveness(probes.gateway(values.gateway_socket(number)), every_s=0.3, timeout_s=0.8)
        name = "gateway" if number == 1 else f"gateway-{number}"
        found.append(service(name, alive, "workers.gateway", "--number", str(number)))
    return found


def control_plane(values: Settings, log: Path) -> list[SupervisedService]:
    needed = () if values.redis_url else ("redis",)
    behind: dict[str, Any] = {"environment": SINGLE, "nice": NICE, "log": log}
    prepare = SupervisedService("prepare", _python("appliance", "prepare"), stop_s=2, once=True, after=needed, **behind)
    web = SupervisedService(
        "web",
        _python("gunicorn", "-c", "python:appliance.local.web", "appliance.asgi:application"),
        alive=Liveness(probes.http(values.console.url + "/health/live"), timeout_s=5.0, misses=4),
        ready=probes.http(values.console.url + "/health/"),
        after=("prepare",),
        **behind,
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
    # One plan or simulation at a time; a lease makes it one solve at a time where there are several workers.
    workers = {
        "celery": ("control", "threads", "-c", "2"),
        "planning": ("planning", "solo"),
        "simulation": ("simulation", "solo"),
    }
    # A heartbeat waits until a solve is over, which may take somewhat longer than its limit.
    misses = HEARTBEAT_MISSES + math.ceil(4 * values.solve_s / HEARTBEAT_LOOK_S)
    found = []
    for name, (queue, *pool) in workers.items():
        # Its heartbeats come in a queue of this home.
        options = ["-Q", f"{queue},{queue}.{values.instance}", "-n", f"{queue}@nereus", "--pool", *pool]
        alive = Liveness(
            _heartbeat(values, name),
            every_s=HEARTBEAT_LOOK_S,
            timeout_s=5.0,
            misses=misses * SIMULATION_PATIENCE if name == "simulation" else misses,
            from_start=False,
        )
        found.append(
            SupervisedService(
                name,
                _python("appliance.local.lean_celery", *options, "--loglevel", values.log_level),
                environment=SINGLE | CHECKED,
                alive=alive,
                stop_s=2,
                nice=NICE,
                after=("prepare",),
                log=log,
            )
        )
    return found


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


def demo(log: Path) -> list[SupervisedService]:
    """Its load is no part of the control plane, and does not stand behind serving."""
    fields: dict[str, Any] = {"environment": SINGLE, "stop_s": 1, "log": log}
    return [
        SupervisedService(
            "register", _python("appliance.demo.register"), nice=NICE, once=True, after=("web",), **fields
        ),
        SupervisedService("load", _python("appliance.demo.load"), after=("register",), **fields),
    ]


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
