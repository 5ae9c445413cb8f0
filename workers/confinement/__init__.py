"""Confinement of processes that run uploaded models, by Landlock, seccomp and resource limits of Linux.

Entry points: :func:`confine_inspection`, :func:`confine_executor`, and :func:`isolation` for what this kernel can do.
Imports no other package of Nereus. ``docs/security.md`` says what is promised.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import landlock, limits, seccomp

#: shared libraries, and where the loader finds them
_LIBRARIES = tuple(map(Path, ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")))
#: the machine, as far as Python and onnxruntime look at it
_MACHINE = tuple(map(Path, ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices", "/sys/bus/pci")))
_RANDOM = (Path("/dev/urandom"), Path("/dev/random"))
_NOWHERE = (Path("/dev/null"), Path("/dev/zero"))
#: what CUDA looks at beyond that: drivers, buses, its own configuration and libraries
_CUDA = tuple(map(Path, ("/sys", "/etc/nvidia", "/usr", "/opt/cuda", "/opt/nvidia")))
_CUDA_DEVICES = ("nvidia*", "nvhost*", "nvmap")
_CUDA_SCRATCH = Path("/dev/shm")


@dataclass(frozen=True)
class Isolation:
    landlock: int  # the ABI of its domain, 0 without one
    seccomp: bool  # whether a filter forbids system calls
    threads: int = 0  # how many ran before, which Landlock does not confine

    @property
    def complete(self) -> bool:
        return bool(self.landlock and self.seccomp and not self.threads)

    def __str__(self) -> str:
        if self.complete:
            return f"Landlock (ABI {self.landlock}) and seccomp"
        missing = []
        if not self.landlock:
            missing.append("Landlock (Linux 5.13 or newer, with landlock among its security modules)")
        if not self.seccomp:
            missing.append("seccomp filters (x86-64 or aarch64)")
        if self.threads:
            missing.append(f"a start without other threads ({self.threads} ran)")
        return "not isolated from this box's files and processes: missing are " + " and ".join(missing)


def isolation() -> Isolation:
    return Isolation(landlock.abi(), seccomp.available())


def confine_inspection(
    read: Iterable[Path], *, private: Path, cpu_s: int, address_space: int, file_bytes: int
) -> tuple[Isolation, bool]:
    """Confine this process, which has one thread, for good, before it reads an upload.

    It can read Python's libraries and ``read``, write nothing but what is open, make threads but no process, and have
    no socket.

    Args:
        private: a folder of which nothing is shown but ``read``.
        cpu_s, address_space, file_bytes: see :func:`.limits.limit`.

    Returns:
        Its means of isolation, and whether it has a network of its own besides.
    """
    limits.limit(cpu_s, address_space, file_bytes)
    apart = limits.separate_network()
    limits.drop_capabilities()
    abi = _landlocked([*_shown([Path("/proc/self")], private), *read], (), _NOWHERE)
    return Isolation(abi, _filtered(accept=False), _other_threads()), apart


def confine_executor(
    read: Iterable[Path], *, private: Path, gpu: bool = False, write: Iterable[Path] = ()
) -> Isolation:
    """Confine this process for good, before it starts threads and loads a model.

    It can read Python's libraries, ``/proc`` without the insides of other processes, and ``read``; write to ``write``
    alone; accept connections on sockets that are bound already; make threads but no process.

    Args:
        private: a folder of which nothing is shown but ``read`` and ``write``.
        gpu: CUDA's devices, libraries and shared memory as well.
    """
    limits.no_core()
    if gpu:
        _make_gpu_devices()
    limits.drop_capabilities()
    shown, devices, write = [Path("/proc")], [*_NOWHERE], [*write]
    if gpu:
        found = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        shown += [*_CUDA, *(Path(folder) for folder in found if folder)]
        devices += [device for name in _CUDA_DEVICES for device in Path("/dev").glob(name)]
        write.append(_CUDA_SCRATCH)
    abi = _landlocked([*_shown(shown, private), *read], write, devices)
    return Isolation(abi, _filtered(accept=True, gpu=gpu), _other_threads())


def _landlocked(read: Iterable[Path], write: Iterable[Path], devices: Iterable[Path]) -> int:
    with contextlib.suppress(OSError):
        return landlock.restrict(read, write, devices)
    return 0


def _filtered(**needs: bool) -> bool:
    if not seccomp.available():
        return False
    with contextlib.suppress(OSError):
        seccomp.forbid(**needs)
        return True
    return False


def _other_threads() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task")) - 1
    return 0


def _shown(more: Iterable[Path], private: Path) -> list[Path]:
    places = {*_python(), *_LIBRARIES, *_MACHINE, *_RANDOM, *more}
    return [inside for place in places for inside in _without(place, private)]


def _python() -> set[Path]:
    places = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    places |= {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {Path(place) for place in places}


def _without(folder: Path, private: Path) -> list[Path]:
    """The folder, or what is in it beside ``private``."""
    folder, private = folder.resolve(), private.resolve()
    if not private.is_relative_to(folder):
        return [folder]
    if folder == private:
        return []
    return [place for entry in folder.iterdir() for place in _without(entry, private)]


def _make_gpu_devices() -> None:
    """Have the driver make the device files that CUDA opens, while it still can."""
    if not Path("/dev/nvidia-uvm").exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["nvidia-modprobe", "-c", "0", "-u"], timeout=30, check=False, capture_output=True)
