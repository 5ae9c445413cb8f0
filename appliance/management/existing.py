"""A check for commands that concern an appliance which has run before."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.db import DatabaseError, connection


def check_database() -> None:
    """Check that the database has tables and can be read. Raises CommandError."""
    try:
        tables = connection.introspection.table_names()
    except DatabaseError as error:
        raise CommandError(f"the database cannot be read: {error}") from None
    if get_user_model()._meta.db_table not in tables:
        raise CommandError(
            f"no appliance has run in {settings.NEREUS.home} with this database yet: "
            "set NEREUS_HOME to an appliance's home, or start it first"
        )
