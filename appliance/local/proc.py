"""Processes as ``/proc`` shows them, and the kernel's adoption of orphans."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Container
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def state(pid: int) -> str:
    """The letter of a process's state (R, S, D, T, Z); empty: no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def waited_s(pid: int) -> float:
    """Seconds that a process's main thread was runnable without a core."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def adopt_orphans(wanted: bool = True) -> None:
    """Become the parent of orphaned descendants, or no longer. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def reap_orphans(own: Container[int]) -> list[int]:
    """Take the exit status of adopted processes that ended; returns their ids."""
    reaped = []
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return reaped
        # The kernel names the same one until its status is taken, which happens soon.
        if ended is None or ended.si_pid in own:
            return reaped
        os.waitpid(ended.si_pid, 0)
        reaped.append(ended.si_pid)
