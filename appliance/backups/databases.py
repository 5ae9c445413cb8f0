"""Consistent copies of the database while others write to it.

SQLite is copied by VACUUM INTO, PostgreSQL by pg_dump.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from appliance import connections
from registry import storage
from workers import disk

from . import BackupError

#: what the copy is called in a backup, by Django's name of the database
NAMES = {"sqlite": "database.sqlite3", "postgresql": "database.dump"}


def copy_to(target: Path, files: bool = True) -> set[str]:
    """Write a copy to ``target``; returns the digests of the files that its rows need.

    Args:
        files: False: nobody asks for those, and the tables that name them may be missing.

    Raises:
        BackupError: it cannot be copied.
    """
    if connection.vendor == "sqlite":
        _vacuum_into(Path(settings.DATABASES["default"]["NAME"]), target)
        return _digests(target) if files else set()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT pg_export_snapshot()")
        (snapshot,) = cursor.fetchone()
        needed = storage.digests() if files else set()
        _postgresql("pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={target}")
    return needed


def _vacuum_into(source: Path, target: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(source, timeout=60)) as database:
            database.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        raise BackupError(f"{source} cannot be copied: {error}") from error
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _digests(copy: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(copy)) as database:
        rows = database.execute("SELECT digest FROM registry_variant UNION SELECT digest FROM registry_validationset")
        return {digest for (digest,) in rows}


def check(copy: Path) -> None:
    """Read a copy as far as possible without a server. Raises BackupError."""
    if connection.vendor == "postgresql":
        _run(_tool("pg_restore"), "--list", str(copy))
        return
    try:
        with contextlib.closing(sqlite3.connect(copy)) as database:
            found = [text for (text,) in database.execute("PRAGMA integrity_check(5)")]
    except sqlite3.Error as error:
        found = [str(error)]
    if found != ["ok"]:
        raise BackupError(f"the database in the backup is damaged: {'; '.join(found)}")


def replace_by(copy: Path, replaced: Path) -> None:
    """Put ``copy`` in the database's place.

    Doing so again after an interruption completes it.

    Args:
        replaced: where SQLite's file as it was goes, if there is one and it is not there already.
    """
    connection.close()
    if connection.vendor == "postgresql":
        options = ("--clean", "--if-exists", "--single-transaction", "--no-owner")
        _postgresql("pg_restore", *options, str(copy))
        return
    place = Path(settings.DATABASES["default"]["NAME"])
    if place.exists() and not replaced.exists():
        replaced.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            _vacuum_into(place, replaced)
        except BackupError:
            # A database that is damaged is why some restore: kept as it is.
            replaced.unlink(missing_ok=True)
            for suffix in ("-wal", ""):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{place}{suffix}", f"{replaced}{suffix}")
    if copy.exists():
        for suffix in ("-wal", "-shm"):
            Path(f"{place}{suffix}").unlink(missing_ok=True)
        os.replace(copy, place)
        disk.sync_folder(place.parent)


def _postgresql(tool: str, *arguments: str) -> None:
    place, password = connections.libpq(settings.DATABASES["default"])
    environment = {"PGPASSWORD": password} if password else {}
    _run(_tool(tool), "--no-password", f"--dbname={place}", *arguments, **environment)


def _tool(name: str) -> str:
    """The path of one of PostgreSQL's programs; Debian keeps most of them out of PATH."""
    found = shutil.which(name)
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[4].zfill(4))
    if found is None and not versions:
        raise BackupError(f"{name} was not found; install PostgreSQL's client programs (Debian: postgresql-client)")
    return found or str(versions[-1])


def _run(*command: str, **environment: str) -> None:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        raise BackupError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-500:]}")


@contextlib.contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A private folder on the home folder's file system, removed afterwards."""
    folder = settings.NEREUS.home / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
