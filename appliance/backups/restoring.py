"""Restoring a backup: verified whole first, then moved into place.

Everything is extracted to a folder of the home folder first. Once a marker on the disk says that it is whole, files are
only moved, and moving again completes what was interrupted (:func:`finish`, called at each start, too).
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import tarfile
from pathlib import Path

import msgspec
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from registry import storage
from scheduler.control import versions
from workers import disk

from . import BackupError, archive, databases
from .archive import HOME_FOLDER, SECRETS, STORE_FOLDER, Manifest

#: in the home folder
STAGE, READY = "restore", "ready.json"
#: tells homes apart
KEY = "secret_key"
#: where the database goes that a restore replaces
COPIES = "backups"


class _Ready(msgspec.Struct, frozen=True):
    """The marker: where everything in the stage belongs.

    Attributes:
        database: name of the database's copy in the stage.
        files: for each other file, its name in the stage and its place in the home folder.
        replaced: where SQLite's file as it was goes, in the home folder.
    """

    database: str
    files: list[tuple[str, str]]
    replaced: str


def restore(source: Path) -> Manifest:
    """Replace database, secrets and store by a backup's.

    Nothing changes unless all of the backup is sound. No process of the appliance may run: the caller holds the home
    folder's lock.

    Raises:
        BackupError: it is not a backup, damaged, of another kind of database, or of a newer release.
        OSError: it cannot be read, or the disk is full.
    """
    home = settings.NEREUS.home
    finish()
    stage = home / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o700)
    try:
        with tarfile.open(source, "r:") as tar:
            manifest = archive.read_manifest(tar)
            _check_fits(manifest, home)
            files, database = [], ""
            for part, path in archive.extract(tar, manifest, stage):
                if part.name == databases.NAMES[manifest.database]:
                    database = path.name
                else:
                    files.append((path.name, _place(part.name)))
        if not database:
            raise BackupError("the backup has no database")
        databases.check(stage / database)
    except (tarfile.TarError, EOFError) as error:
        shutil.rmtree(stage, ignore_errors=True)
        raise BackupError(f"{source} is not a backup, or is damaged: {error}") from error
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    if _of_another_home(stage, files, home):
        versions.given_elsewhere()
    ready = _Ready(database, files, _free_name(home / COPIES))
    disk.sync_folder(stage)
    disk.write_private(stage / READY, msgspec.json.encode(ready))
    try:
        finish()
    except BackupError:
        # A server refused all of it. The marker goes first: without it the rest is rubbish.
        (stage / READY).unlink(missing_ok=True)
        shutil.rmtree(stage, ignore_errors=True)
        raise
    except OSError as error:
        raise BackupError(f"interrupted: {error}. The next start completes it, or try again") from error
    return manifest


def finish() -> bool:
    """Complete an interrupted restore that was verified; whether there was one."""
    home = settings.NEREUS.home
    stage = home / STAGE
    marker = disk.read(stage / READY)
    if marker is None:
        return False
    ready = msgspec.json.decode(marker, type=_Ready)
    databases.replace_by(stage / ready.database, home / ready.replaced)
    for name, place in ready.files:
        if (stage / name).exists():
            target = home / place
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (stage / name).chmod(0o600)
            os.replace(stage / name, target)
            disk.sync_folder(target.parent)
    disk.sync_folder(home)
    (stage / READY).unlink()
    shutil.rmtree(stage, ignore_errors=True)
    return True


def _of_another_home(stage: Path, files: list[tuple[str, str]], home: Path) -> bool:
    key = next((name for name, place in files if place == KEY), None)
    return key is None or disk.read(stage / key) != disk.read(home / KEY)


def _check_fits(manifest: Manifest, home: Path) -> None:
    if manifest.database != connection.vendor:
        raise BackupError(
            f"the backup is of a {manifest.database} database; this appliance uses {connection.vendor} "
            "(NEREUS_DATABASE_URL)"
        )
    present = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    known = {*present, *(name for migration in present.values() for name in migration.replaces)}
    newer = [f"{app}.{name}" for app, name in manifest.migrations if (app, name) not in known]
    if newer:
        raise BackupError(
            f"the backup was made by release {manifest.version}, whose database this one does not know "
            f"({', '.join(newer[:3])}); install that release first"
        )
    needed, free = sum(part.size for part in manifest.parts), shutil.disk_usage(home).free
    if needed > free:
        raise BackupError(f"the backup takes {needed} bytes, and only {free} are free under {home}")


def _place(name: str) -> str:
    folder, _, rest = name.partition("/")
    if folder == STORE_FOLDER and re.fullmatch(r"[0-9a-f]{64}", rest):
        return str(storage.path(rest).relative_to(settings.NEREUS.home))
    secret = ".." not in rest.split("/") and any(
        fnmatch.fnmatchcase(rest, pattern) and rest.count("/") == pattern.count("/") for pattern in SECRETS
    )
    if folder == HOME_FOLDER and secret:
        return rest
    raise BackupError(f"{name!r} does not belong into a backup")


def _free_name(folder: Path) -> str:
    number = 1
    while (folder / f"replaced-{number:04}.sqlite3").exists():
        number += 1
    return f"{COPIES}/replaced-{number:04}.sqlite3"
