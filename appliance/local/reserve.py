"""Reserved room on the disk for a start.

Processes write small files (sockets, descriptions) before they serve. A file of :data:`BYTES` is kept beside the log;
on a full disk a start deletes it, and then earlier logs.
"""

from __future__ import annotations

import os
from pathlib import Path

BYTES = 4 * 1024 * 1024
#: free bytes, as a multiple of BYTES, from which on the file is made again
PLENTY = 16


def keep(folder: Path) -> None:
    path = folder / "reserve"
    if path.exists() or _free(folder) < PLENTY * BYTES:
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        os.posix_fallocate(handle, 0, BYTES)
    except OSError:
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def make_room(folder: Path, wanted: int = BYTES // 2) -> list[str]:
    """Delete the reserve, then the oldest logs, until there is room; their names."""
    deleted = []
    for path in [folder / "reserve", *sorted(folder.glob("*.log.*"), reverse=True)]:
        if _free(folder) >= wanted:
            break
        try:
            path.unlink()
        except OSError:
            continue
        deleted.append(path.name)
    return deleted


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
