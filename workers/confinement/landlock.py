"""A Landlock domain: the files, TCP, abstract unix sockets and signals that stay in reach.

By ctypes (linux/landlock.h); degrades by ABI, as the kernel's documentation advises. Rules hold for inodes: a folder's
rule covers what is in it when that is opened, and a folder that is replaced has no rule any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from .libc import call, renounce_privileges

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _TRUNCATE, _IOCTL_DEV = 1 << 7, 1 << 8, 1 << 14, 1 << 15
_FILE_RIGHTS = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _TRUNCATE | _MAKE_REG | _MAKE_DIR | _REMOVE_FILE | _REMOVE_DIR
_DEVICE = _READ | _WRITE_FILE | _IOCTL_DEV
#: ABI -> how many rights over files it has (each from bit 0)
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
#: binding and connecting, from ABI 4; abstract sockets and signals to outside of the domain, from ABI 6
_TCP, _SCOPES = 0b11, 0b11


def abi() -> int:
    """The kernel's version of Landlock's interface; 0 where it has none."""
    try:
        return call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(read: Iterable[Path], write: Iterable[Path] = (), devices: Iterable[Path] = ()) -> int:
    """Confine this thread, and those that it starts, to these files and folders.

    Paths that do not exist are left out.

    Args:
        write: folders in which files may be made, changed and removed as well.
        devices: opened for reading, writing and ioctl.

    Returns:
        Landlock's ABI version. Raises OSError where the kernel has none.
    """
    version = call(_CREATE_RULESET, None, 0, _VERSION)
    handled = (1 << _RIGHTS[min(version, 5)]) - 1
    attributes = struct.pack("=QQQ", handled, _TCP, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = call(_CREATE_RULESET, ctypes.addressof(buffer), len(attributes), 0)
    try:
        for paths, rights in ((read, _READ), (write, _WRITE), (devices, _DEVICE)):
            for path in paths:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    _allow(ruleset, path, rights & handled)
        renounce_privileges()
        call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.addressof(rule), 0)
    finally:
        os.close(descriptor)
