"""Outlives the supervisor by a moment: when the supervisor is gone, however it went, every process group it started
is ended. Standard library only, so that it costs little and starts at once.

Reads lines ``add PGID`` and ``remove PGID`` from standard input; its end means that the supervisor is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 4.0


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
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
    # Last started, first stopped: load, gateway, node, Celery, web, Redis.
    for group in reversed(groups):
        if _alive(group):
            os.killpg(group, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(_alive(group) for group in groups):
        time.sleep(0.05)
    for group in reversed(groups):
        if _alive(group):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
