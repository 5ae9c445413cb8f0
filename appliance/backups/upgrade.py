"""The database at a start, before its migrations."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from workers import __version__, disk, log

from . import BackupError, databases, restoring

logger = log.get("backups")

#: copies of either kind that are kept in the home folder: before migrations, and replaced by restores
KEEP = 5
INCREMENTAL = 2


def before_migrations() -> None:
    """Prepare the database for migrations, and keep a copy if any are to be applied.

    Completes an interrupted restore first, and prepares SQLite's file.

    Raises:
        BackupError: the database cannot be copied; the disk is full, for example.
    """
    if restoring.finish():
        logger.warning("restore_completed")
    folder = settings.NEREUS.home / restoring.COPIES
    if MigrationRecorder(connection).has_table():
        _copy_if_behind(folder)
    vacuum_incrementally()
    for kind in ("before", "replaced"):
        _keep_newest(folder, kind)


def _copy_if_behind(folder: Path) -> None:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not plan or not executor.loader.applied_migrations:
        return
    first = plan[0][0]
    folder.mkdir(mode=0o700, exist_ok=True)
    suffix = Path(databases.NAMES[connection.vendor]).suffix
    copy = folder / f"before-{_next(folder):04}-{first.app_label}.{first.name}-for-{__version__}{suffix}"
    try:
        databases.copy_to(copy, files=False)
    except BackupError as error:
        copy.unlink(missing_ok=True)
        if connection.vendor == "sqlite":
            raise
        # Its operators may have their own way of copying a server's databases.
        logger.error("not_copied_before_migration", error=str(error))
        return
    disk.sync_folder(folder)
    logger.info("copied_before_migration", copy=str(copy), migrations=len(plan))


def _number(path: Path) -> int:
    found = re.match(r"(?:before|replaced)-(\d+)", path.name)
    return int(found[1]) if found else 0


def _next(folder: Path) -> int:
    return max((_number(path) for path in folder.glob("before-*")), default=0) + 1


def _keep_newest(folder: Path, kind: str) -> None:
    for path in sorted(folder.glob(f"{kind}-*"), key=_number)[:-KEEP]:
        path.unlink()


def vacuum_incrementally() -> None:
    """Let SQLite give back free pages; a file that does not is written anew once."""
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        (mode,) = cursor.execute("PRAGMA auto_vacuum").fetchone()
        if mode != INCREMENTAL:
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
            cursor.execute("VACUUM")
            logger.info("database_written_anew")
