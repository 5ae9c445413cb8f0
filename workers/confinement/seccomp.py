"""A seccomp filter of system calls that this process can no longer make.

It holds for the process's threads, too. Linux, by ctypes. The filter is classic BPF (linux/seccomp.h, linux/filter.h).
It names what is forbidden: Python, numpy, onnxruntime and CUDA need others on each kernel and C library. Calls newer
than the table are answered as by an older kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import syscalls
from .libc import call, prctl, renounce_privileges

_PR_GET_SECCOMP = 21
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
#: all threads; and without the mitigation that slows each branch of a filtered process on older kernels
_TSYNC, _SPEC_ALLOW = 1, 4
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
#: offsets in struct seccomp_data; of an argument the lower half
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_CLONE_THREAD = 0x10000
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPES = 1, 1, 5, 0xF
_PRIO_PROCESS = 0
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def available() -> bool:
    """Whether the kernel has seccomp filters, for an architecture in :mod:`.syscalls`."""
    return syscalls.architecture() is not None and prctl(_PR_GET_SECCOMP) >= 0


def forbid(*, accept: bool, gpu: bool = False) -> None:
    """Install the filter in all threads, for good.

    Args:
        accept: connections may be accepted on sockets that listen already, and pairs of sockets made.
        gpu: unix sockets may be made (though not connected) and memory files, as CUDA does.

    Raises:
        OSError: the kernel has no filters.
    """
    renounce_privileges()
    program = _program(accept, gpu)
    instructions = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(instructions)))
    number = _SYS_SECCOMP[os.uname().machine]
    try:
        call(number, _SET_MODE_FILTER, _TSYNC | _SPEC_ALLOW, ctypes.addressof(header))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        call(number, _SET_MODE_FILTER, _TSYNC, ctypes.addressof(header))


def _program(accept: bool, gpu: bool) -> list[bytes]:
    numbers = syscalls.numbers()
    pid = os.getpid()
    forbidden = set(syscalls.FORBIDDEN)
    conditions = {
        "clone": [_load(_ARGUMENTS), _jump(_ANY_BIT, _CLONE_THREAD, 1, 0), _answer(errno.EPERM)],
        # The C library takes clone then, whose flags a filter can see.
        "clone3": [_answer(errno.ENOSYS)],
        "connect": [_answer(errno.ECONNREFUSED)],
        "kill": _unless(0, pid),
        "tgkill": _unless(0, pid),
        "prlimit64": _unless(0, 0, pid),
        # For the calling thread alone: neither of a process group nor of a user.
        "setpriority": [*_unless(0, _PRIO_PROCESS), *_unless(1, 0)],
        "ioctl": _if(1, _TIOCSTI, _TIOCLINUX),
    }
    if accept:
        conditions["socketpair"] = _connected()
        forbidden -= {"listen"}
    else:
        forbidden |= {"socketpair", "accept", "accept4", "sched_setaffinity"}
    if gpu:
        conditions["socket"] = [
            _load(_ARGUMENTS),
            _jump(_EQUAL, _AF_UNIX, 1, 0),
            _answer(errno.EPERM),
            *_connected(),
        ]
    else:
        forbidden |= {"socket", "memfd_create"}
    # x86-64 takes the calls of its x32 interface as well, whose numbers are beyond the newest.
    program = [
        _load(_ARCHITECTURE),
        _jump(_EQUAL, syscalls.architecture(), 1, 0),
        _answer(errno.ENOSYS),
        _load(_NUMBER),
        _jump(_GREATER, syscalls.NEWEST, 0, 1),
        _answer(errno.ENOSYS),
    ]
    for name, check in conditions.items():
        # Each check ends in an answer; what passes it is allowed.
        steps = [*check, _instruction(_RETURN, _ALLOW)]
        program += [_jump(_EQUAL, numbers[name], 0, len(steps)), *steps]
    for name in sorted(forbidden - conditions.keys()):
        if name in numbers:
            program += [_jump(_EQUAL, numbers[name], 0, 1), _answer(errno.EPERM)]
    return [*program, _instruction(_RETURN, _ALLOW)]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return _instruction(code, value, if_true, if_false)


def _answer(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)


def _unless(argument: int, *values: int) -> list[bytes]:
    """EPERM unless the argument is one of the values."""
    tests = [_jump(_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [_load(_ARGUMENTS + 8 * argument), *tests, _answer(errno.EPERM)]


def _if(argument: int, *values: int) -> list[bytes]:
    tests = [_jump(_EQUAL, value, 0, 1) for value in values]
    steps = [step for test in tests for step in (test, _answer(errno.EPERM))]
    return [_load(_ARGUMENTS + 8 * argument), *steps]


def _connected() -> list[bytes]:
    """Return a filter that permits connection-based types of sockets alone.

    Others are answered with EPERM: they can send without a connection, which would reach any unix socket's path.
    """
    load = [_load(_ARGUMENTS + 8), _instruction(_AND, _SOCK_TYPES)]
    return [*load, _jump(_EQUAL, _SOCK_STREAM, 2, 0), _jump(_EQUAL, _SOCK_SEQPACKET, 1, 0), _answer(errno.EPERM)]
