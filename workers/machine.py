"""The running box's identity, by which members recognise that they share it."""

from __future__ import annotations

from pathlib import Path

#: the kernel's name for this boot, while copies of a disk image share /etc/machine-id
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: a container with a network of its own is a box of its own: mostly it has its own files, too
_NETWORK = Path("/proc/self/ns/net")


def identity(path: Path = _BOOT_ID, network: Path = _NETWORK) -> str:
    """A name for this box until its next boot; empty where the kernel gives none."""
    try:
        boot = path.read_text().strip().replace("-", "")[:40]
        return f"{boot}-{network.stat().st_ino}"
    except OSError:
        return ""
