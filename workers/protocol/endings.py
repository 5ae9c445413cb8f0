"""The end of a device's executor process, as its supervisor saw it.

It is a file next to the device's socket. The connection's loss alone does not distinguish a crash from an orderly end;
only the parent gets the exit status. The file is read within milliseconds of the loss, so it is written without waiting
for the disk.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

#: the exit status of an executor whose run did not end when it was terminated
EXIT_STUCK = 86
#: of one that took more memory than its device has
EXIT_MEMORY = 87
#: of one whose GPU reported an error that no later run in the same process survives
EXIT_GPU_FAULT = 88
#: of one whose GPU is gone
EXIT_GPU_LOST = 89


class Ending(msgspec.Struct, frozen=True):
    pid: int
    crashed: bool  # the process's work may be the cause, unlike where an operator or the node ended it
    reason: str


def fault_path(endpoint: str) -> Path:
    """Return the file in which an executor notes why it ends itself.

    It has ``exit STATUS WHY`` or a fatal signal's trace: a daemon that is not its parent gets no exit status. An empty
    file means that the executor runs, or that something else ended it.
    """
    return Path(endpoint.removeprefix("unix:")).with_suffix(".fault")


def _path(endpoint: str) -> Path:
    return Path(endpoint.removeprefix("unix:")).with_suffix(".ended")


def write(endpoint: str, ending: Ending) -> None:
    """Publish how the latest process of a device ended."""
    path = _path(endpoint)
    whole = path.with_suffix(".ending")
    whole.write_bytes(msgspec.json.encode(ending))
    os.replace(whole, path)


def read(endpoint: str, pid: int) -> Ending | None:
    """The end of ``pid``; None: it runs, or its supervisor has not noticed yet."""
    try:
        ending = msgspec.json.decode(_path(endpoint).read_bytes(), type=Ending)
    except (OSError, msgspec.DecodeError):
        return None
    return ending if ending.pid == pid else None
