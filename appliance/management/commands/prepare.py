"""``manage.py prepare``: make tables and credentials, beside serving."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, CommandError

from appliance.local.firststart import prepare
from workers import log


class Command(BaseCommand):
    help = "Bring the database up to date, and make what credentials.json names."
    # Checks load all pages and the API; the web process, which has loaded these, runs them (appliance/local/web.py). A
    # release whose checks fail has migrated the database by then; tests and Ansible run them before that.
    requires_system_checks = ()

    def handle(self, *args, **options) -> None:
        log.configure("prepare", "warning")
        try:
            lines = prepare()
        except CommandError:
            raise
        except Exception as error:
            # The last line is what the supervisor shows; the whole story is in the log.
            log.get("prepare").exception("not_prepared")
            self.stdout.write(f"the database cannot be used: {type(error).__name__}: {_one_line(error)}")
            sys.exit(1)
        for line in lines:
            self.stdout.write(line)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
