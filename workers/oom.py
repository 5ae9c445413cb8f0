"""Which process the kernel ends first where the box's memory ends."""

from __future__ import annotations

import contextlib
from pathlib import Path

#: they run uploaded models, and are started again
EXECUTOR = 500
#: it holds every client's connection
GATEWAY = -500


def set_score(score: int) -> None:
    """Adjust this process's score; less than the present one only where the system permits it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))
