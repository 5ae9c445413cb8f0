"""Secrets of this appliance: made at the first start, in ``NEREUS_HOME``, mode 0600."""

from __future__ import annotations

import json
import os
import secrets as random
from pathlib import Path

CREDENTIALS = "credentials.json"


def write_private(path: Path, text: str) -> None:
    """Replace a file at once; nobody else can read it at any moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def secret_key(home: Path) -> str:
    """Django's signing key, made when first asked for. Two first starts at once agree on one."""
    path = home / "secret_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text() or secret_key_wait(path)
    key = random.token_urlsafe(50)
    with os.fdopen(descriptor, "w") as file:
        file.write(key)
    return key


def secret_key_wait(path: Path) -> str:
    """The other process has made the file and is about to write it."""
    import time

    for _ in range(100):
        time.sleep(0.02)
        if text := path.read_text():
            return text
    raise RuntimeError(f"{path} is empty; delete it and start again")


def credentials(home: Path) -> dict[str, str]:
    """Contents of ``credentials.json``; empty before the first start."""
    try:
        return json.loads((home / CREDENTIALS).read_text())
    except FileNotFoundError:
        return {}


def save_credentials(home: Path, values: dict[str, str]) -> None:
    write_private(home / CREDENTIALS, json.dumps(values, indent=2) + "\n")
