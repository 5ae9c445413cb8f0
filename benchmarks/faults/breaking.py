"""Faults of processes, of Redis and at boot.

Each is a context manager on a site that breaks something when it is entered, and mends it, where it does not mend
itself, when it is left.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psutil

from tools.child import free_ports

from .site import Site, wait

Fault = Callable[[Site], AbstractContextManager[None]]


@contextmanager
def nothing(site: Site) -> Iterator[None]:
    yield


@contextmanager
def killed(role: str, site: Site) -> Iterator[None]:
    """SIGKILL to the first process of a role, once."""
    site.leader(role).send_signal(signal.SIGKILL)
    yield


@contextmanager
def hung(role: str, site: Site) -> Iterator[None]:
    """SIGSTOP to all processes of a role, of executors to the oldest; those that still run are continued."""
    site.leader(role)
    processes = site.processes(role)[: 1 if role == "executor" else None]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


@contextmanager
def executor_and_gateway_killed(site: Site) -> Iterator[None]:
    with killed("executor", site):
        time.sleep(2.0)
        with killed("gateway", site):
            yield


@contextmanager
def lost_device(site: Site) -> Iterator[None]:
    victim = site.leader("executor").cmdline()[-1]
    over = False

    def kill() -> bool:
        for process in site.processes("executor"):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[-1] == victim:
                    process.kill()
        return over

    killing = threading.Thread(target=wait, args=(kill, 600, 0.2), daemon=True)
    killing.start()
    try:
        yield
    finally:
        over = True
        killing.join(10)


@contextmanager
def everything_lost(site: Site) -> Iterator[None]:
    site.kill_all()
    yield
    site.spawn()


# --- Redis ------------------------------------------------------------------------------------------------------------


@contextmanager
def redis_flushed(site: Site) -> Iterator[None]:
    site.redis.flushall()
    yield


# --- starts -----------------------------------------------------------------------------------------------------------


@contextmanager
def boots_with(prepare: Fault, site: Site) -> Iterator[None]:
    """The appliance stops in order, ``prepare`` breaks something, and it starts again until that is mended."""
    site.box.stop()
    before = dict(site.box.environment)
    with prepare(site):
        site.spawn()
        yield
    # For the start after this one.
    site.box.environment = before


@contextmanager
def redis_deaf(site: Site) -> Iterator[None]:
    """At ``NEREUS_REDIS_URL`` something accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        site.box.environment["NEREUS_REDIS_URL"] = f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        yield


@contextmanager
def postgres_away(site: Site) -> Iterator[None]:
    site.box.environment["NEREUS_DATABASE_URL"] = f"postgresql://nereus@127.0.0.1:{free_ports(1)[0]}/nereus"
    yield
