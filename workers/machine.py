"""The identity of the running box, by which members that share it are recognised."""

from __future__ import annotations

from pathlib import Path

#: the kernel's name for this boot: the same in every container of a box, while copies of a disk image share
#: /etc/machine-id
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def identity(path: Path = _BOOT_ID) -> str:
    """A name for this box until its next boot; empty where the kernel gives none."""
    try:
        return path.read_text().strip().replace("-", "")[:64]
    except OSError:
        return ""
