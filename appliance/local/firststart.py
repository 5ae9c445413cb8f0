"""The database's part of a start: tables, and the rows of ``credentials.json``.

Those are the console user, tokens and keys. Rows that exist are never changed. Where one of this home's is not there,
another one is made beside them, under a name that is free: after the file was lost, and for a second home on the same
database.
"""

from __future__ import annotations

import itertools
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import check_password
from django.core.management import call_command
from django.db import models, transaction

from appliance import secrets
from appliance.backups.upgrade import before_migrations
from registry import clock, console_key
from registry.access.roles import AccessRole
from registry.models import FRESH_S, ApiKey, ApiToken, Gateway, JoinToken, Node, hash_secret
from scheduler.control import versions
from workers.secret_kinds import PREFIXES, new_secret

Credentials = dict[str, Any]
#: what a secret's row is called, unless another home's is called so
LOCAL = "local"
#: by entry of ``credentials.json``: the model of its row, and the column with its hash
HASHED = {
    "api_token": (ApiToken, "token_hash"),
    "api_key": (ApiKey, "key_hash"),
    "join_token": (JoinToken, "token_hash"),
}


def prepare() -> list[str]:
    """Bring the database up to date, and have all of ``credentials.json`` work.

    A password that the operator changed in the console stays as it is, and leaves the file. Returns lines for the
    operator, among them a password only where this call has set it.
    """
    before_migrations()
    call_command("migrate", interactive=False, verbosity=0)
    versions.reissue()
    values = secrets.make_credentials(settings.NEREUS.home)
    lines = _choose(values)
    # Written before the database changes: a start that is cut off here is completed by the next.
    _save(values)
    with transaction.atomic():
        lines += _install(values)
        console_key.end_earlier()
        _forget_connections()
    values["installed"] = sorted(set(secrets.ENTRIES) & set(values))
    _save(values)
    return lines


def _forget_connections() -> None:
    """Record that the connections of the last run are gone, however it ended.

    With a Redis of several homes, members that were seen recently are connected to another home, and are left alone.
    """
    now = clock.steady()
    for kind in (Node, Gateway):
        members = kind.objects.all()
        if settings.NEREUS.redis_url:
            members = members.exclude(seen_s__gt=now - FRESH_S, seen_s__lte=now)
        members.update(channel="", seen_s=None, claim_channel="", claim_s=None)


def _save(values: Credentials) -> None:
    if secrets.credentials(settings.NEREUS.home) != values:
        secrets.save_credentials(settings.NEREUS.home, values)


def _choose(values: Credentials) -> list[str]:
    """Replace what must not be installed as it is; returns lines for the operator."""
    users = get_user_model().objects
    installed, lines = set(values["installed"]), []
    user = users.filter(username=values["console_user"]).first()
    if user is None and not users.exists():
        # Another database than the one that the file was made for, or none yet.
        installed.clear()
    elif user is not None and "console_password" in values:
        ours = check_password(values["console_password"], user.password)
        if not ours and "console_user" in installed:
            # Changed in the console.
            del values["console_password"]
        elif not ours:
            values["console_user"] = _free(users, "username", values["console_user"])
            lines.append(
                f"The database has a console user {user.username} whose password is not in "
                f"{settings.NEREUS.home / secrets.CREDENTIALS}: that file was lost, or belongs to another home. "
                f"{user.username} stays as it is; the user {values['console_user']} is made beside it, with a token "
                "and keys of its own."
            )
    for name in PREFIXES:
        if name in installed and not _there(name, values[name]):
            # Deleted by an operator: it must not come back to life.
            values[name] = new_secret(name)
            installed.discard(name)
    values["installed"] = sorted(installed)
    return lines


def _install(values: Credentials) -> list[str]:
    """Make the rows that are not there; returns lines for the operator."""
    lines = _install_user(values)
    if not _there("api_key", values["api_key"]):
        name, key = _free(ApiKey.objects, "name", LOCAL), values["api_key"]
        ApiKey.objects.create(name=name, prefix=key[:8], key_hash=hash_secret(key))
    if not _there("join_token", values["join_token"]):
        name = _free(JoinToken.objects, "name", LOCAL)
        JoinToken.objects.create(
            name=name, token_hash=hash_secret(values["join_token"]), auto_approve=True, own_box=True
        )
    return lines


def _install_user(values: Credentials) -> list[str]:
    lines = []
    users = get_user_model().objects
    user = users.filter(username=values["console_user"]).first()
    if user is None and "console_user" not in values["installed"]:
        password = values.setdefault("console_password", new_secret()[:16])
        user = users.create_superuser(values["console_user"], password=password)
        lines.append(f"Console user {user.username}, password {password} (shown this once).")
    if "api_token" not in values or _there("api_token", values["api_token"]):
        return lines
    if user is not None:
        name, token = _free(ApiToken.objects, "name", LOCAL), values["api_token"]
        ApiToken.objects.create(
            name=name, user=user, role=AccessRole.OPERATOR.label, prefix=token[:8], token_hash=hash_secret(token)
        )
    else:
        # Its owner was deleted.
        del values["api_token"]
        lines.append(
            f"The API token in {secrets.CREDENTIALS} belonged to {values['console_user']}, who was deleted; it was "
            "taken out. Make one in the console."
        )
    return lines


def _there(name: str, secret: str) -> bool:
    model, column = HASHED[name]
    return model.objects.filter(**{column: hash_secret(secret)}).exists()


def _free(rows: models.Manager, field: str, wanted: str) -> str:
    names = itertools.chain([wanted], (f"{wanted}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not rows.filter(**{field: name}).exists())
