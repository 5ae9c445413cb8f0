"""Uploads wait in line for one of the places at which this box inspects.

Places are file locks: they count for all processes of this box, and the kernel frees them with their process.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import time
from collections.abc import Iterator
from pathlib import Path

from registry.errors import Busy

#: inspections at a time: a slow one must not hold up all others
PLACES = 2
#: uploads that may wait: each holds a thread, and a file of up to the largest size
MAX_WAITING = 8
#: how long an upload waits
MAX_WAIT_S = 30
#: a further inspection starts only if this multiple of its memory is available
MEMORY_FACTOR = 2
_POLL_S = 0.05


@contextlib.contextmanager
def place(folder: Path, most_s: float, memory_bytes: int) -> Iterator[Path]:
    """Wait for a place and hold it.

    Yields a path in ``folder`` that is this inspection's alone while it holds the place.

    Args:
        most_s: how long the inspection can take.
        memory_bytes: how much it can take.

    Raises:
        Busy: too many wait already, or no place became free in :data:`MAX_WAIT_S`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        number = _take(folder, most_s, memory_bytes, held)
        if number is None:
            number = _wait(folder, most_s, memory_bytes, held)
        yield folder / f".inspecting-{number}.files"


def _wait(folder: Path, most_s: float, memory_bytes: int, held: contextlib.ExitStack) -> int:
    with contextlib.ExitStack() as waiting:
        if not any(_lock(folder / f".waiting-{number}", waiting) for number in range(MAX_WAITING)):
            raise _busy(folder, f"{MAX_WAITING} uploads wait already for their inspection")
        deadline = time.monotonic() + MAX_WAIT_S
        while (number := _take(folder, most_s, memory_bytes, held)) is None:
            if time.monotonic() >= deadline:
                raise _busy(folder, f"other uploads are being inspected, for longer than {MAX_WAIT_S} s")
            time.sleep(_POLL_S)
        return number


def _take(folder: Path, most_s: float, memory_bytes: int, held: contextlib.ExitStack) -> int | None:
    """The number of a free place, held from now on; None without."""
    for number in range(PLACES):
        # Together they must not push inference out of memory.
        if number and _available_bytes() < MEMORY_FACTOR * memory_bytes:
            return None
        path = _place(folder, number)
        if _lock(path, held):
            path.write_text(f"{time.monotonic() + most_s:.0f}")
            return number
    return None


def _place(folder: Path, number: int) -> Path:
    return folder / f".inspecting-{number}"


def _lock(path: Path, held: contextlib.ExitStack) -> bool:
    file = open(path, "a")  # noqa: SIM115 - open for as long as it is held
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    held.enter_context(file)
    return True


def _busy(folder: Path, detail: str) -> Busy:
    ends = []
    for number in range(PLACES):
        with contextlib.suppress(OSError, ValueError):
            ends.append(float(_place(folder, number).read_text()))
    left = min((end - time.monotonic() for end in ends if end > time.monotonic()), default=1.0)
    return Busy(f"{detail}; try again later", retry_after_s=max(1, math.ceil(left)))


def _available_bytes() -> int:
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
