"""Binds the process to its parent's life, its device's cores, its socket."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import sys
from pathlib import Path

from workers.protocol.specs import DeviceInfo
from workers.settings import SOCKET_PATH_LIMIT

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent goes, however it goes.

    SIGKILL, because an executor that hangs inside a kernel must not outlive its node either. ``parent`` is the pid
    of the expected parent: one that died before the call is noticed by its pid being gone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(f"parent {parent} is gone")


def bind_cores(device: DeviceInfo) -> None:
    """Pin the process to the device's cores, before any thread starts and inherits it.

    Raises:
        ValueError: the cores do not exist here or may not be used.
    """
    if device.kind != "cpu" or not device.cores:
        return
    try:
        os.sched_setaffinity(0, device.cores)
    except OSError as error:
        raise ValueError(f"cores {list(device.cores)} of device {device.id}: {error.strerror}") from None


def listening_socket(endpoint: str) -> socket.socket:
    """A unix socket at ``unix:/path``, mode 0600, in the place of a stale one.

    Raises:
        ValueError: not such an endpoint, a path too long or relative, or something else in its place.
        OSError: the folder is missing or closed to us.
    """
    path = Path(endpoint.removeprefix("unix:"))
    if not endpoint.startswith("unix:") or not path.is_absolute():
        raise ValueError(f"endpoint {endpoint!r}: must be unix:/path")
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise ValueError(f"endpoint {endpoint!r}: a socket's path must be at most {SOCKET_PATH_LIMIT} bytes")
    if path.is_socket():
        # A device has one executor, and its node starts the next one only once the last is dead: this socket is stale.
        path.unlink()
    elif path.exists():
        raise ValueError(f"endpoint {endpoint!r}: exists and is not a socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.listen(128)
    listener.setblocking(False)
    return listener
