"""End a supervisor's process groups and executors once the supervisor is gone.

It does so for whatever reason the supervisor went. A process of its own, standard library only, so that it costs little
and starts at once. Reads lines ``add PGID`` and ``remove PGID`` from standard input, whose end means that the
supervisor is gone. Its argument is the folder of executors' process files. Executors have sessions of their own, since
they outlive the node daemon; the daemon writes ``executor-DEVICE.pid`` with "PID STARTTIME" for each.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

GRACE_S = 4.0
#: where a process's state and its start time stand behind its name in /proc/PID/stat
_STATE, _START_TIME = 0, 19


def leftover_executors(folder: Path) -> list[int]:
    """Executors that run, by their process files and start times."""
    found = []
    for path in sorted(folder.glob("executor-*.pid")):
        try:
            pid, start_time = (int(word) for word in path.read_text().split())
        except (OSError, ValueError):
            continue
        if pid > 1 and _started(pid) == start_time:
            found.append(pid)
    return found


def _started(pid: int) -> int | None:
    """Ticks since the boot; None: no such process, or only its exit status."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[_STATE] in ("Z", "X") else int(fields[_START_TIME])
    except (OSError, ValueError, IndexError):
        return None


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal_groups(groups: list[int], number: int) -> None:
    # Last started, first stopped: load, web, Redis, gateway, node.
    for group in reversed(groups):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            pass


def main() -> None:
    folder = Path(sys.argv[1])
    # Ctrl-C and hang-ups are the supervisor's to handle; this process may still be signalled by name.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: list[int] = []
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "add":
            groups.append(int(value))
        elif word == "remove" and int(value) in groups:
            groups.remove(int(value))
    _signal_groups(groups, signal.SIGTERM)
    signal_all(leftover_executors(folder), signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and (any(map(_alive, groups)) or leftover_executors(folder)):
        time.sleep(0.05)
    _signal_groups(groups, signal.SIGKILL)
    # After the groups, so that no node daemon is left that would start another.
    signal_all(leftover_executors(folder), signal.SIGKILL)


if __name__ == "__main__":
    main()
