"""Secrets of this appliance, made at the first start.

They are in ``NEREUS_HOME``, mode 0600, and durable before they are used. A file that a power cut left empty or broken
counts as absent. Nothing here needs the database.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets as random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers import disk, log
from workers.secret_kinds import PREFIXES, new_secret
from workers.settings import JOIN_TOKEN_FILE

CREDENTIALS = "credentials.json"
#: entries of ``credentials.json`` that only this appliance makes
ENTRIES = ("console_user", "console_password", "api_token", "api_key", "join_token")
ADMIN = "admin"

logger = log.get("secrets")


def secret_key(home: Path) -> str:
    """Return Django's signing key, made when first asked for.

    Two first starts at once agree on one. Where it cannot be stored it is made for this process alone: sign-ins then
    end with the process.
    """
    path = home / "secret_key"
    if key := _text(path):
        return key
    key = random.token_urlsafe(50)
    try:
        with _alone(home):
            if other := _text(path):
                return other
            if path.exists():
                logger.warning("secret_key_replaced", path=str(path), reason="it was empty; all sign-ins end")
            disk.write_private(path, key.encode())
    except OSError as error:
        logger.error("secret_key_not_stored", path=str(path), reason=str(error))
    return key


def replace_secret_key(home: Path) -> None:
    """Make another signing key for processes that start from now on. Raises OSError."""
    with _alone(home):
        disk.write_private(home / "secret_key", random.token_urlsafe(50).encode())


def credentials(home: Path) -> dict[str, Any]:
    """The contents of ``credentials.json``; empty: none, or it cannot be used."""
    path = home / CREDENTIALS
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("credentials_unusable", path=str(path), reason=str(error))
        return {}
    if not isinstance(values, dict) or not all(isinstance(values.get(name, ""), str) for name in ENTRIES):
        logger.warning("credentials_unusable", path=str(path), reason="not an object whose entries are text")
        return {}
    return values


def make_credentials(home: Path) -> dict[str, Any]:
    """The credentials, those absent made and stored. Raises OSError.

    Entries in ``installed`` have been in the database before.
    """
    with _alone(home):
        values = credentials(home)
        if not values:
            made = {"console_user": ADMIN, "console_password": random.token_urlsafe(12)}
            values = made | {kind: new_secret(kind) for kind in PREFIXES} | {"installed": []}
            save_credentials(home, values)
        elif "installed" not in values:
            # From an earlier release, which stored them once they were in the database, or about to be.
            values["installed"] = sorted(set(ENTRIES) & set(values))
        _keep_join_token(home, values)
        return values


def save_credentials(home: Path, values: dict[str, Any]) -> None:
    """Replace ``credentials.json``, or keep the old content. Raises OSError."""
    disk.write_private(home / CREDENTIALS, (json.dumps(values, indent=2) + "\n").encode())
    _keep_join_token(home, values)


def _keep_join_token(home: Path, values: dict[str, Any]) -> None:
    """Store the join token where this box's members read it, whenever they need it."""
    path, token = home / JOIN_TOKEN_FILE, values.get("join_token", "")
    if token and _text(path) != token:
        disk.write_private(path, token.encode())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold a lock on the home folder itself, which needs no space on the disk."""
    handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
