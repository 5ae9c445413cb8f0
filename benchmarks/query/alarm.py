"""Waking at a given moment: event loops count milliseconds, too coarse for thousands of queries a second."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

_MONOTONIC, _NONBLOCK, _ABSOLUTE = 1, os.O_NONBLOCK, 1


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Setting(ctypes.Structure):
    _fields_ = [("interval", _Time), ("value", _Time)]


class Alarm:
    """A kernel timer (timerfd_create(2)) that wakes a coroutine; a context manager.

    Raises:
        OSError: the kernel gives none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_MONOTONIC, _NONBLOCK)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._waiting: asyncio.Future | None = None

    def __enter__(self) -> Alarm:
        self._loop.add_reader(self._file, self._fired)
        return self

    def __exit__(self, *_error) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)

    async def at(self, moment: float) -> None:
        """Return at ``moment``, seconds of ``time.perf_counter`` (CLOCK_MONOTONIC on Linux); at once if it is past."""
        if moment <= time.perf_counter():
            return
        seconds = int(moment)
        setting = _Setting(_Time(0, 0), _Time(seconds, int((moment - seconds) * 1e9)))
        self._waiting = self._loop.create_future()
        if self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(setting), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        await self._waiting

    def _fired(self) -> None:
        os.read(self._file, 8)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
