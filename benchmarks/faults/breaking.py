"""Faults of processes, of Redis, of databases and at boot.

Each is a context manager on a site that breaks something when it is entered, and mends it, where it does not mend
itself, when it is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import redis

from tools.child import free_ports

from .site import Site, Skipped, wait

Fault = Callable[[Site], AbstractContextManager[None]]

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


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


@contextmanager
def redis_replaced(site: Site) -> Iterator[None]:
    process = site.leader("redis")
    with contextlib.suppress(redis.RedisError):
        site.redis.config_set("save", "")
    process.kill()
    for path in site.box.home.glob("*.rdb"):
        path.unlink()
    yield


@contextmanager
def redis_sleeps(seconds: float, site: Site) -> Iterator[None]:
    """DEBUG SLEEP: it accepts connections, and answers nothing."""
    # Its answer comes after the sleep; nobody waits for it.
    connection = site.redis.connection_pool.make_connection()
    connection.connect()
    connection.send_command("DEBUG", "SLEEP", str(seconds))
    end = time.monotonic() + seconds
    yield
    time.sleep(max(0.0, end - time.monotonic()))
    connection.disconnect()


@contextmanager
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


# --- SQLite -----------------------------------------------------------------------------------------------------------


@contextmanager
def sqlite_locked(site: Site) -> Iterator[None]:
    connection = sqlite3.connect(site.database, timeout=30, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def sqlite_read_only(site: Site) -> Iterator[None]:
    """Nobody can write the database's files, root included (chattr +i)."""
    files = [str(path) for path in site.box.home.glob(site.database.name + "*")]
    done = subprocess.run(["chattr", "+i", *files], capture_output=True, check=False)
    try:
        if done.returncode:
            raise Skipped(f"chattr: {done.stderr.decode()[-200:].strip()}")
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], capture_output=True, check=False)


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
def sqlite_damaged(site: Site) -> Iterator[None]:
    """Bytes of the database's first pages are overwritten, and its log is gone."""
    for log in ("-wal", "-shm"):
        site.database.with_name(site.database.name + log).unlink(missing_ok=True)
    size = site.database.stat().st_size
    with site.database.open("r+b") as file:
        for at in (*range(100, min(size, 16_384), 512), size // 2):
            file.seek(at)
            file.write(b"\xde\xad" * 128)
    yield


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


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class WithPostgres(Site):
    def place(self) -> None:
        if not POSTGRES:
            raise Skipped("PostgreSQL is not installed")
        self._data, self._port = self.folder / "postgres", free_ports(1)[0]
        self._user = "postgres" if os.geteuid() == 0 else None
        self._data.mkdir(mode=0o700)
        if self._user:
            for folder in (self.folder, *self.folder.parents):
                if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
                    folder.chmod(folder.stat().st_mode | 0o011)
            shutil.chown(self._data, self._user)
        self._run("initdb", "-D", str(self._data), "-U", "nereus", "--auth=trust", "--no-sync")
        self.start_postgres()
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "nereus", "nereus")
        self.box.environment["NEREUS_DATABASE_URL"] = f"postgresql://nereus@127.0.0.1:{self._port}/nereus"

    def clear(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.stop_postgres()

    def start_postgres(self) -> None:
        """Start it, and wait until it accepts connections."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self._run("pg_ctl", "-D", str(self._data), "-o", options, "-l", str(self._data / "log"), "-w", "start")

    def stop_postgres(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(POSTGRES[-1].parent / program), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout.decode()[-500:]}")


@contextmanager
def postgres_gone(site: WithPostgres) -> Iterator[None]:
    site.stop_postgres()
    try:
        yield
    finally:
        site.start_postgres()
