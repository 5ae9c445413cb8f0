"""Resource limits and privileges of a process, given up for good."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct

from .libc import call, prctl, unshare

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
PR_SET_PDEATHSIG = 1
#: threads of a process in a user namespace of its own; Linux counts them there for a user alone
MOST_THREADS = 64
MOST_FILES = 64


def limit(cpu_s: int, address_space: int, file_bytes: int) -> None:
    """Limit this process's CPU time, memory, files and priority.

    It dumps no core, has a lower priority (nice 10 more), is the first to be killed when memory runs out, and dies with
    its parent. It may open :data:`MOST_FILES` files at a time.

    Args:
        address_space: bytes that it may map.
        file_bytes: bytes written to any one file.
    """
    lower_limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 2)
    lower_limit(resource.RLIMIT_AS, address_space)
    lower_limit(resource.RLIMIT_FSIZE, file_bytes)
    lower_limit(resource.RLIMIT_NOFILE, MOST_FILES)
    no_core()
    os.nice(10)
    first_to_be_killed()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def lower_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a ``resource.RLIMIT_*``; raising it back is a privilege."""
    wanted = (soft, soft if hard is None else hard)
    inherited = resource.getrlimit(kind)[1]
    if inherited != resource.RLIM_INFINITY:
        wanted = (min(wanted[0], inherited), min(wanted[1], inherited))
    resource.setrlimit(kind, wanted)


def lower_priority(niceness: int) -> None:
    """Raise this thread's niceness to at least this; lowering it is a privilege."""
    os.setpriority(os.PRIO_PROCESS, 0, max(niceness, os.getpriority(os.PRIO_PROCESS, 0)))


def no_core() -> None:
    lower_limit(resource.RLIMIT_CORE, 0)


def first_to_be_killed() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def separate_network() -> bool:
    """Leave the box's network; False: user namespaces are forbidden here."""
    if not unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC):
        return False
    lower_limit(resource.RLIMIT_NPROC, MOST_THREADS)
    return True


def drop_capabilities() -> None:
    """Give up root's privileges over files, signals, the clock and priorities."""
    number = _CAPSET.get(os.uname().machine)
    if number is None:
        return
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), 8)
    none = ctypes.create_string_buffer(24)
    call(number, ctypes.addressof(header), ctypes.addressof(none))
