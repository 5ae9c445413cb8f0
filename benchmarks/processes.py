"""CPU time and start-up of the processes that benchmarks look at."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (seconds, in clock ticks of usually 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def find(pids: list[int], text: str) -> list[int]:
    """Those of ``pids`` whose command line contains ``text``."""
    return [pid for pid in pids if text in command(pid)]
