"""Which variant an executor runs and which it loads, in a file that outlives the process.

When an executor crashes its supervisor reads from the file what it crashed in. Both ends map the same 16 bytes: to note
a run costs no system call.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

_SLOTS = struct.Struct("<qq")
_ONE = struct.Struct("<q")


def record_path(endpoint: str) -> Path:
    """The record of the device that listens at ``unix:/path``, next to its socket."""
    return Path(endpoint.removeprefix("unix:")).with_suffix(".running")


class RunRecord:
    """Written by the executor."""

    def __init__(self, path: Path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, _SLOTS.size)
            self._slots = mmap.mmap(descriptor, _SLOTS.size)
        finally:
            os.close(descriptor)
        self._slots[:] = bytes(_SLOTS.size)

    def running(self, variant: int) -> None:
        """Note the id of the variant whose run begins; 0: none runs."""
        _ONE.pack_into(self._slots, 0, variant)

    def loading(self, variant: int) -> None:
        """Note the id of the variant whose load begins; 0: none loads."""
        _ONE.pack_into(self._slots, _ONE.size, variant)


def blamed(path: Path) -> int:
    """The variant that ran, else the one that was being loaded, when the record was last written; 0 for none."""
    try:
        running, loading = _SLOTS.unpack(path.read_bytes())
    except (OSError, struct.error):
        return 0
    return running or loading
