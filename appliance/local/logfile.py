"""The appliance's log file, to which all its processes append."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

#: the file and KEPT earlier ones are at most about this long each
BYTES = 16 * 1024 * 1024
KEPT = 5


class LogFile:
    """A log file that is rotated by copying and truncating.

    A process that died or hangs could not open another file. Every writer appends (``O_APPEND``), so it goes on at the
    new end. Lines that are written between the last look at the file's end and its truncation, a few microseconds, are
    lost.
    """

    def __init__(self, path: Path, limit: int = BYTES, kept: int = KEPT):
        self.path = path
        self._limit = limit
        self._kept = kept

    def rotate(self) -> bool:
        """Move the content aside if it is beyond the limit; whether it did.

        Raises OSError: there is no room for a copy; the content is given up then.
        """
        try:
            if self.path.stat().st_size <= self._limit:
                return False
        except FileNotFoundError:
            return False
        for number in range(self._kept - 1, 0, -1):
            if self._numbered(number).exists():
                self._numbered(number).replace(self._numbered(number + 1))
        first = self._numbered(1)
        with self.path.open("r+b") as current:
            try:
                with open(first, "wb", opener=_private) as copy:
                    shutil.copyfileobj(current, copy, 1024 * 1024)
            except OSError:
                first.unlink(missing_ok=True)
                raise
            finally:
                os.ftruncate(current.fileno(), 0)
        return True

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
