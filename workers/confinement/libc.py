"""System calls by number, with errors as exceptions."""

from __future__ import annotations

import ctypes
import os

_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call(number: int, *arguments: int | None) -> int:
    """Make a system call; raises OSError with its errno."""
    result = _libc.syscall(ctypes.c_long(number), *(ctypes.c_void_p(argument) for argument in arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def prctl(option: int, *arguments: int) -> int:
    """As prctl(2): negative with errno set on an error."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _libc.prctl(option, *(ctypes.c_ulong(argument) for argument in padded))


def renounce_privileges() -> None:
    """Set ``no_new_privs``, without which Landlock and seccomp want root."""
    if prctl(_PR_SET_NO_NEW_PRIVS, 1) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


def unshare(flags: int) -> bool:
    return _libc.unshare(flags) == 0
