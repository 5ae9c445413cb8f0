"""Limit of open files: a gateway's connections would reach the usual 1,024 first."""

from __future__ import annotations

import resource

#: open files of one process, unless less is permitted; beyond that only the kernel's tables grow
WANTED = 65_536


def raise_limit() -> int:
    """Raise this process's limit of open files to :data:`WANTED` or what is permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    permitted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= permitted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (permitted, hard))
    return permitted
