"""How an executor process ended, and whether that counts as a crash."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from workers.protocol.endings import EXIT_STUCK

#: signals that a process raises by its own doing
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}


@dataclass(frozen=True)
class Loss:
    """``reason``: in words. ``crashed``: what it ran may be the cause, unlike where an operator or the node ended it.
    ``variant``: id of the one that it ran or loaded when it crashed; 0 for none."""

    reason: str
    crashed: bool = False
    variant: int = 0

    def blaming(self, variant: int) -> Loss:
        return replace(self, variant=variant)


def how_it_ended(code: int, answered: bool, oom_killed: bool) -> Loss:
    """The loss of a process by its exit status (negative: the signal).

    Args:
        answered: whether it ever answered; one that did not failed to start.
        oom_killed: whether the kernel has killed a process for memory meanwhile.
    """
    if code == EXIT_STUCK:
        return Loss("ended itself: a run did not stop when its limit was exceeded", crashed=True)
    if code >= 0:
        return Loss(f"exited with code {code}", crashed=answered and code != 0)
    if -code == signal.SIGKILL and oom_killed:
        return Loss("killed by the kernel for want of memory", crashed=True)
    try:
        return Loss(f"killed by {signal.Signals(-code).name}", crashed=answered and -code in _FAULTS)
    except ValueError:
        return Loss(f"killed by signal {-code}")


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 where it does not report it."""
    try:
        with open("/proc/vmstat") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError, IndexError):
        return 0
