"""Faults of processes and of Redis: context managers on a site."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psutil
import redis

from .site import Site, wait

#: Breaks something when entered; mends it, where it does not mend itself, when left.
Fault = Callable[[Site], AbstractContextManager[None]]


def killed(role: str) -> Fault:
    """SIGKILL to the first process of a role, once."""

    @contextlib.contextmanager
    def fault(site: Site) -> Iterator[None]:
        site.leader(role).send_signal(signal.SIGKILL)
        yield

    return fault


def hung(role: str) -> Fault:
    """Return a fault: SIGSTOP to all processes of a role.

    Only the oldest executor is stopped. At the end, those that still run are continued.

    Raises:
        RuntimeError: no process of the role runs.
    """

    @contextlib.contextmanager
    def fault(site: Site) -> Iterator[None]:
        processes = site.processes(role)
        if not processes:
            raise RuntimeError(f"no process of {role} runs")
        if role == "executor":
            del processes[1:]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)

    return fault


def one_after_the_other(first: Fault, second: Fault, apart_s: float) -> Fault:
    """Two faults, ``apart_s`` seconds apart."""

    @contextlib.contextmanager
    def fault(site: Site) -> Iterator[None]:
        with first(site):
            time.sleep(apart_s)
            with second(site):
                yield

    return fault


@contextlib.contextmanager
def lost_device(site: Site) -> Iterator[None]:
    """The first device's executor is killed, as often as it is started, until the end."""
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


@contextlib.contextmanager
def everything_lost(site: Site) -> Iterator[None]:
    """SIGKILL to all processes, and a new start: no disk is lost."""
    site.kill_all()
    yield
    site.spawn()


# --- Redis ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def redis_flushed(site: Site) -> Iterator[None]:
    """FLUSHALL."""
    site.redis.flushall()
    yield


@contextlib.contextmanager
def redis_replaced(site: Site) -> Iterator[None]:
    """Its process and its snapshot are gone: the next one is empty."""
    process = site.leader("redis")
    with contextlib.suppress(redis.RedisError):
        site.redis.config_set("save", "")
    process.kill()
    for path in site.box.home.glob("*.rdb"):
        path.unlink()
    for folder in site.box.home.glob("appendonlydir"):
        for path in folder.iterdir():
            path.unlink()
    yield


def redis_sleeps(seconds: float) -> Fault:
    """DEBUG SLEEP: it accepts connections, and answers nothing."""

    @contextlib.contextmanager
    def fault(site: Site) -> Iterator[None]:
        # Its answer comes after the sleep; nobody waits for it.
        connection = site.redis.connection_pool.make_connection()
        connection.connect()
        connection.send_command("DEBUG", "SLEEP", str(seconds))
        end = time.monotonic() + seconds
        yield
        time.sleep(max(0.0, end - time.monotonic()))
        connection.disconnect()

    return fault


@contextlib.contextmanager
def redis_full(site: Site) -> Iterator[None]:
    """No memory is left: whatever needs some is refused (maxmemory with noeviction)."""
    client = site.redis
    before = client.config_get("maxmemory") | client.config_get("maxmemory-policy")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    try:
        yield
    finally:
        with contextlib.suppress(redis.RedisError):
            for name, value in before.items():
                site.redis.config_set(name, value)
