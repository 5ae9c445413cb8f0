"""Processes as ``/proc`` shows them, and the kernel's adoption of orphans."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Container
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def state(pid: int) -> str:
    """Return the letter of a process's state; empty where there is no such process.

    R, S, D (waits for a device), T (stopped), Z ...
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def waited_s(pid: int) -> float:
    """Return the seconds that a process's main thread was runnable without a core.

    0 where the kernel does not count them.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def adopt_orphans(wanted: bool = True) -> None:
    """Have the kernel make this process the parent of its orphaned descendants.

    Those are processes whose own parent died.

    Args:
        wanted: False: no longer.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def reap_orphans(own: Container[int]) -> list[int]:
    """Take the exit status of adopted processes that ended; returns their ids.

    Args:
        own: children whose status somebody else waits for.
    """
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
