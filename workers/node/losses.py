"""Ends of executor processes, and whether they count as crashes."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from workers.protocol.endings import EXIT_GPU_FAULT, EXIT_GPU_LOST, EXIT_MEMORY, EXIT_STUCK

#: signals that a process raises by its own doing
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
#: ends by the executor's own doing, and whether what it ran may be the cause
_OWN = {
    EXIT_STUCK: ("a run did not stop when its limit was exceeded", True),
    EXIT_MEMORY: ("it took more memory than its device has", True),
    EXIT_GPU_FAULT: ("its GPU reported an error that only a new process survives", True),
    EXIT_GPU_LOST: ("its GPU is gone", False),
}
_FATAL = "Fatal Python error: "
_EXIT = re.compile(r"exit (\d{1,3})(?: (?:executor: )?(.*))?")


@dataclass(frozen=True)
class Loss:
    reason: str  # in words
    crashed: bool = False  # what it ran may be the cause; False where an operator or the node ended it
    variant: int = 0  # id of the one that it ran or loaded when it crashed; 0 for none

    def blaming(self, variant: int) -> Loss:
        return replace(self, variant=variant)


def how_it_ended(code: int | None, answered: bool, oom_killed: bool, fault: Path) -> Loss:
    """The loss of a process.

    Args:
        code: its exit status (negative: the signal); None: unknown, since an earlier daemon had started it.
        answered: whether it ever answered; one that did not failed to start.
        oom_killed: whether the kernel has killed a process for memory meanwhile.
        fault: where the process left why it ended, see :func:`workers.protocol.endings.fault_path`.
    """
    note = _note(fault)
    own = _EXIT.match(note)
    if code is None:
        if note.startswith(_FATAL):
            return Loss(f"crashed: {note.removeprefix(_FATAL)[:100]}", crashed=True)
        if own is None and not oom_killed:
            return Loss("ended; its exit status is unknown, since an earlier daemon had started it")
        code = int(own[1]) if own else -signal.SIGKILL
    if code in _OWN:
        why, crashed = _OWN[code]
        return Loss(f"ended itself: {why}", crashed)
    if code >= 0:
        why = f": {own[2]}" if code and own is not None and own[2] else ""
        return Loss(f"exited with code {code}{why}"[:500], crashed=answered and code != 0)
    if -code == signal.SIGKILL and oom_killed:
        return Loss("killed by the kernel for lack of memory", crashed=True)
    try:
        return Loss(f"killed by {signal.Signals(-code).name}", crashed=answered and -code in _FAULTS)
    except ValueError:
        return Loss(f"killed by signal {-code}")


def _note(fault: Path) -> str:
    try:
        return fault.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""


def oom_kills() -> int:
    """Processes that the kernel has killed for memory since boot; 0: not reported."""
    try:
        with open("/proc/vmstat") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError, IndexError):
        return 0
