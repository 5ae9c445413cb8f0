"""``manage.py backup FILE``: database, store and secrets, while it may serve."""

from __future__ import annotations

from pathlib import Path

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from appliance.backups import BackupError, archive
from appliance.management.existing import check_database
from registry.audit.recording import record


class Command(BaseCommand):
    help = "Write database, store and secrets to one file, while the appliance serves. Keep it as safe as the secrets."

    def add_arguments(self, parser) -> None:
        parser.add_argument("file", type=Path, help="does not exist yet; a tar archive, readable by its owner alone")

    def handle(self, *args, file: Path, **options) -> None:
        check_database()
        try:
            manifest = archive.write(file.absolute())
        except (BackupError, OSError, DatabaseError) as error:
            raise CommandError(str(error)) from None
        try:
            record("made", "backup", file.name, after={"parts": len(manifest.parts)})
        except DatabaseError as error:
            self.stderr.write(f"Warning: the backup is good, but was not recorded: {error}")
        for digest in manifest.missing:
            self.stderr.write(f"Warning: {digest} is not in the store, though a variant or validation set needs it")
        total = sum(part.size for part in manifest.parts)
        self.stdout.write(f"{file}: {len(manifest.parts)} files, {total / 2**20:.1f} MiB")
