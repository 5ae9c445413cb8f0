"""A timer for an event loop that is precise to some tens of microseconds.

Loops themselves count whole milliseconds. Linux has such timers as files (timerfd), which :mod:`os` offers only from
Python 3.13 on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import time
from collections.abc import Callable

_ABSOLUTE = 1
#: struct itimerspec: seconds and nanoseconds of the interval and of the time
_Spec = ctypes.c_long * 4


class Alarm:
    """Calls a function from the event loop at the time that was set last.

    Args:
        ring: called without arguments, never early. The alarm is off by then, and may be set again.

    Attributes:
        at: when it rings, on the clock of ``time.monotonic()``; inf: it is off.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self.at = math.inf
        self._file: int | None = _file()
        loop.add_reader(self._file, self._readable)

    def set(self, at: float) -> None:
        """Set when to ring (``time.monotonic()``): at once if past, never if inf."""
        if self._file is not None:
            self.at = at
            _set(self._file, at)

    def close(self) -> None:
        """Never ring again; may be called twice."""
        self.at = math.inf
        file, self._file = self._file, None
        if file is not None:
            self._loop.remove_reader(file)
            os.close(file)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            # Nothing to read: the alarm was set anew meanwhile.
            os.read(self._file, 8)
            self.at = math.inf
            self._ring()


# By its name: a library that fakes the wall clock takes absolute times for that clock's.
_libc = ctypes.CDLL("libc.so.6", use_errno=True)


def _file() -> int:
    file = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create: " + os.strerror(ctypes.get_errno()))
    return file


def _set(file: int, at: float) -> None:
    # Zero turns the timer off.
    seconds = 0.0 if at == math.inf else max(at, 1e-9)
    whole = int(seconds)
    if _libc.timerfd_settime(file, _ABSOLUTE, _Spec(0, 0, whole, int((seconds - whole) * 1e9)), None):
        raise OSError(ctypes.get_errno(), "timerfd_settime: " + os.strerror(ctypes.get_errno()))
