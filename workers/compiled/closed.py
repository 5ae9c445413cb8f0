"""What is compiled, and where the outcome is kept."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: outcomes, each in a folder of the name that :func:`signature` gives
FOLDER = ROOT / ".compiled"
#: the library that all of the modules share
LIBRARY = "nereus__mypyc"
#: All of them or none: compiled classes do not mix with plain ones of the same names. Not one of them may define a
#: msgspec.Struct, whose fields' types mypyc does not keep.
MODULES = (
    *(
        f"workers.dispatch.{name}"
        for name in (
            "bookings",
            "classes",
            "dispatcher",
            "fleet",
            "gaps",
            "granting",
            "lateness",
            "leeway",
            "menu",
            "overload",
            "pace",
            "placing",
            "rules",
            "squeezing",
            "starting",
            "state",
            "wakes",
        )
    ),
    *(
        f"workers.gateway.{name}"
        for name in (
            "accounts",
            "bursts",
            "dataplane",
            "flights",
            "holding",
            "http1.connection",
            "http1.messages",
            "http1.reading",
            "http1.rendering",
            "http1.server",
            "http1.shared",
            "margin",
            "rest",
            "routing.least_completion",
            "routing.outlook",
            "routing.switch",
            "sent",
            "stats",
        )
    ),
    *(f"workers.protocol.{name}" for name in ("framing", "results", "v2_repeated", "v2_response")),
)


def source(module: str) -> Path:
    """A module's file below the root."""
    return Path(*module.split(".")).with_suffix(".py")


def signature(root: Path = ROOT) -> str:
    """What an outcome must have been built from: all of these processes' sources (constants of others become part of
    who uses them) and how they are compiled, this interpreter, this kind of machine.

    Raises:
        OSError: a source cannot be read, or has just gone.
    """
    found = hashlib.sha256(str(sysconfig.get_config_var("EXT_SUFFIX")).encode())
    sources = (root / "workers").rglob("*.py")
    # Editors leave links there that lead nowhere.
    for path in (*sorted(path for path in sources if path.is_file()), root / "workers" / "compiled" / "mypy.ini"):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]
