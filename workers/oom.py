"""The order in which the kernel ends processes when the box runs out of memory."""

from __future__ import annotations

import contextlib
from pathlib import Path

#: executors, which run uploaded models and are started again
EXECUTOR = 500
#: it holds every client's connection
GATEWAY = -500


def set_score(score: int) -> None:
    """Adjust this process's score; lowering it needs permission."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))
