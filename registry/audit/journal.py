"""JSON lines of the audit log: appended by any process, rotated by size."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

#: bytes of a file before it is moved aside
MAX_BYTES = 8 * 2**20
#: files kept, the one in use included
FILES = 5
#: bytes of a line; longer values are left out, with a note
MAX_LINE = 16_384


class Journal:
    """``audit.jsonl`` with its predecessors ``audit.jsonl.1`` (the latest) and so on."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES, files: int = FILES):
        self.path = folder / "audit.jsonl"
        self._max_bytes = max_bytes
        self._files = files

    def append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":"), default=str)
        if len(line) > MAX_LINE:
            line = json.dumps({**entry, "before": {}, "after": {}, "cut": len(line)}, default=str)
        self.path.parent.mkdir(exist_ok=True)
        with open(self.path.with_suffix(".lock"), "w") as lock:
            # Processes write and rotate in turn.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists() and self.path.stat().st_size + len(line) > self._max_bytes:
                self._rotate()
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(line + "\n")

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
            if newer.exists():
                os.replace(newer, older)
