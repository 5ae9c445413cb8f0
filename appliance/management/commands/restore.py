"""``manage.py restore FILE``: replace all by a backup's, while it is stopped."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from appliance.backups import BackupError, restoring
from appliance.local.preconditions import StartError, locked


class Command(BaseCommand):
    help = (
        "Replace database, store and secrets by a backup's; the appliance must be stopped. Migrations run at its start."
    )
    requires_system_checks = ()

    def add_arguments(self, parser) -> None:
        parser.add_argument("file", type=Path, help="made by manage.py backup")

    def handle(self, *args, file: Path, **options) -> None:
        try:
            with locked(settings.NEREUS.home):
                manifest = restoring.restore(file.absolute())
        except (StartError, BackupError, OSError, DatabaseError) as error:
            raise CommandError(str(error)) from None
        made = datetime.fromtimestamp(manifest.made, UTC)
        self.stdout.write(f"Restored {file}, made {made:%Y-%m-%d %H:%M} UTC by release {manifest.version}.")
