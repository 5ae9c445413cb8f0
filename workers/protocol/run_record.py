"""A record of the variant that an executor runs or loads.

It is in a file that outlives the process. When an executor crashes its supervisor reads from the file what it crashed
in. Both ends map the same 16 bytes: to note a run costs no system call.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

RUNNING, LOADING = 0, 1
_SLOTS = struct.Struct("=qq")


def record_path(endpoint: str) -> Path:
    """The record of the device that listens at ``unix:/path``, next to its socket."""
    return Path(endpoint.removeprefix("unix:")).with_suffix(".running")


def create(path: Path) -> memoryview:
    """Create the record: two ids of variants, to be written by the executor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, _SLOTS.size)
        slots = memoryview(mmap.mmap(descriptor, _SLOTS.size)).cast("q")
    finally:
        os.close(descriptor)
    slots[RUNNING] = slots[LOADING] = 0
    return slots


def blamed(path: Path) -> int:
    """Id of the variant that ran last, or was being loaded; 0 for none."""
    try:
        running, loading = _SLOTS.unpack(path.read_bytes())
    except (OSError, struct.error):
        return 0
    return running or loading
