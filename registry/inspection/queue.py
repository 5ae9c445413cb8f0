"""Uploads wait in line for one of the places at which this box inspects.

Places are file locks: they count for all processes of this box, and the kernel frees them with their process.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from registry.errors import Busy

#: inspections at a time: a slow one must not hold up all others
PLACES = 2
#: uploads that may wait: each holds a thread, and a file of up to the largest size
MAX_WAITING = 8
#: how long an upload waits, and after how long its sender should try again
MAX_WAIT_S = 30
RETRY_S = 10
#: a further inspection starts only if this multiple of its memory is available
MEMORY_FACTOR = 2
_POLL_S = 0.05


@contextlib.contextmanager
def place(folder: Path, memory_bytes: int) -> Iterator[Path]:
    """Wait for a place and hold it.

    Yields a path in ``folder`` that is this inspection's alone while it holds the place.

    Args:
        memory_bytes: how much it can take.

    Raises:
        Busy: too many wait already, or no place became free in :data:`MAX_WAIT_S`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        number = _take(folder, memory_bytes, held)
        if number is None:
            number = _wait(folder, memory_bytes, held)
        yield folder / f".inspecting-{number}.files"


def _wait(folder: Path, memory_bytes: int, held: contextlib.ExitStack) -> int:
    with contextlib.ExitStack() as waiting:
        if not any(_lock(folder / f".waiting-{number}", waiting) for number in range(MAX_WAITING)):
            raise Busy(f"{MAX_WAITING} uploads wait already for their inspection; try again later", RETRY_S)
        deadline = time.monotonic() + MAX_WAIT_S
        while (number := _take(folder, memory_bytes, held)) is None:
            if time.monotonic() >= deadline:
                raise Busy(f"other uploads are being inspected, for longer than {MAX_WAIT_S} s; try later", RETRY_S)
            time.sleep(_POLL_S)
        return number


def _take(folder: Path, memory_bytes: int, held: contextlib.ExitStack) -> int | None:
    """The number of a free place, held from now on; None without."""
    for number in range(PLACES):
        # Together they must not push inference out of memory.
        if number and psutil.virtual_memory().available < MEMORY_FACTOR * memory_bytes:
            return None
        if _lock(folder / f".inspecting-{number}", held):
            return number
    return None


def _lock(path: Path, held: contextlib.ExitStack) -> bool:
    file = open(path, "a")  # noqa: SIM115 - open for as long as it is held
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    held.enter_context(file)
    return True
