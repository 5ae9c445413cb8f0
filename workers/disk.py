"""Small private files that are replaced whole, also in a power cut."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Replace ``path`` (mode 0600) and make its folder, atomically and durably."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp opens with mode 0600, so the content is never readable by others, not even for a moment.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """Make the renames in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def safe_name(name: str, limit: int = 64) -> str:
    """Return ``name`` as a file name of at most ``limit`` (>= 16) characters.

    A name that has to be changed gets eight digits of its SHA-256, so that different names stay different.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if safe == name and len(name) <= limit and not name.startswith("."):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{safe.lstrip('.')[: limit - 9]}-{digest}"
