"""Drop privileges and limits of the inspection process before it reads the upload. Linux."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def confine(cpu_s: int, address_space: int, output_bytes: int) -> bool:
    """Limit this process for good: CPU seconds, address space (bytes), bytes written to any file, open files, no core
    dump, lowest priority, no new privileges, dies with its parent.

    Returns whether the network is out of reach too: that needs user namespaces, which some boxes forbid. Must be
    called while the process has one thread.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output_bytes, output_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
