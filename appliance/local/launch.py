"""Execute a service's program, bound to the supervisor's life and niced.

``python -I -S launch.py PARENT NICE COMMAND...``, standard library only. NICE puts it behind serving. A program of its
own rather than code between fork and exec, which may block forever in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, nice, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(f"the supervisor {parent} is gone")
    if nice:
        _behind(nice)
    os.execvp(command[0], command)


def _behind(nice: int) -> None:
    os.nice(nice)
    try:
        # Without preemption of others on waking.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        # Where the kernel groups sessions for scheduling, only the group's value counts towards other sessions.
        with open("/proc/self/autogroup", "w") as file:
            file.write(str(nice))
    except OSError:
        pass


if __name__ == "__main__":
    main()
