"""Backups of an appliance: database, store and secrets in one file.

They are made while the appliance serves. Entry points: :func:`.archive.write` and :func:`.restoring.restore` behind
``manage.py backup`` and ``restore``, and :func:`.upgrade.before_migrations` at each start.
"""


class BackupError(Exception):
    """A backup cannot be written or restored; the text says why and what to do."""
