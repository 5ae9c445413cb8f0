"""Faults of databases and of the control plane at boot.

They are context managers on a site.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.child import free_ports

from .breaking import Fault
from .site import Site, Skipped

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def database(site: Site) -> Path:
    """The SQLite file."""
    return site.box.home / "nereus.sqlite3"


@contextlib.contextmanager
def sqlite_locked(site: Site) -> Iterator[None]:
    """Somebody else's transaction holds the write lock."""
    connection = sqlite3.connect(database(site), timeout=30, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextlib.contextmanager
def sqlite_read_only(site: Site) -> Iterator[None]:
    """Nobody can write the database's files, root included (chattr +i)."""
    files = [str(path) for path in site.box.home.glob(database(site).name + "*")]
    done = subprocess.run(["chattr", "+i", *files], capture_output=True, check=False)
    try:
        if done.returncode:
            raise Skipped(f"chattr: {done.stderr.decode()[-200:].strip()}")
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], capture_output=True, check=False)


def boots_with(prepare: Fault) -> Fault:
    """Return a fault: the appliance starts with something broken.

    It stops in order, ``prepare`` breaks something, and it starts again. The row lasts until that is mended.
    """

    @contextlib.contextmanager
    def fault(site: Site) -> Iterator[None]:
        site.box.stop()
        before = dict(site.box.environment)
        with prepare(site):
            site.spawn()
            yield
        # For the start after this one.
        site.box.environment = before

    return fault


@contextlib.contextmanager
def nothing(site: Site) -> Iterator[None]:
    """No fault."""
    yield


@contextlib.contextmanager
def sqlite_damaged(site: Site) -> Iterator[None]:
    """Bytes of the database's first pages are overwritten, and its log is gone."""
    path = database(site)
    for log in (path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        log.unlink(missing_ok=True)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in (*range(100, min(size, 16_384), 512), size // 2):
            file.seek(at)
            file.write(b"\xde\xad" * 128)
    yield


@contextlib.contextmanager
def redis_deaf(site: Site) -> Iterator[None]:
    """At ``NEREUS_REDIS_URL`` something accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        site.box.environment["NEREUS_REDIS_URL"] = f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        yield


@contextlib.contextmanager
def postgres_away(site: Site) -> Iterator[None]:
    """At ``NEREUS_DATABASE_URL`` nothing listens."""
    site.box.environment["NEREUS_DATABASE_URL"] = f"postgresql://nereus@127.0.0.1:{free_ports(1)[0]}/nereus"
    yield


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class WithPostgres(Site):
    """The database is PostgreSQL, run by an ordinary user."""

    def place(self) -> None:
        if not POSTGRES:
            raise Skipped("PostgreSQL is not installed")
        self._bin = POSTGRES[-1].parent
        self._data = self.folder / "postgres"
        self._port = free_ports(1)[0]
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
        """End it at once, without a checkpoint."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout.decode()[-500:]}")


@contextlib.contextmanager
def postgres_gone(site: WithPostgres) -> Iterator[None]:
    """It ends, and is started again at the end."""
    site.stop_postgres()
    try:
        yield
    finally:
        site.start_postgres()
