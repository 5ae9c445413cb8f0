"""The process's cores, memory, socket and confinement."""

from __future__ import annotations

import compileall
import contextlib
import faulthandler
import os
import resource
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil

from workers import confinement, log, oom
from workers.confinement.limits import lower_limit
from workers.protocol import endings
from workers.protocol.specs import DeviceInfo
from workers.settings import SOCKET_PATH_LIMIT, Settings

#: the packages that an executor imports from are in here
_CODE = Path(__file__).resolve().parent.parent
#: least limit on a process's memory in bytes: libraries and buffers need this much beside models
LEAST_MEMORY = 2**30
#: sessions whose threads' stacks are allowed for: a stack counts towards the limit whether it is used or not
_SESSIONS = 32
_STACK = 8 * 2**20
End = Callable[..., NoReturn]


def bind_cores(device: DeviceInfo) -> None:
    """Pin the process to its cores before any thread starts; ValueError if it cannot."""
    if device.kind != "cpu" or not device.cores:
        return
    try:
        os.sched_setaffinity(0, device.cores)
    except OSError as error:
        raise ValueError(f"cores {list(device.cores)} of device {device.id}: {error.strerror}") from None


def limit_memory(device: DeviceInfo) -> None:
    """Limit memory (CPU devices), so that allocations fail; be ended first by the box."""
    oom.set_score(oom.EXECUTOR)
    limit = memory_limit(device)
    if limit and device.kind == "cpu":
        stacks = _SESSIONS * _STACK * max(0, len(device.cores) - 1)
        lower_limit(resource.RLIMIT_DATA, limit + stacks)


def memory_limit(device: DeviceInfo) -> int:
    """Bytes of main memory that the device's process may take; 0: any number."""
    if not device.memory_bytes:
        return 0
    if device.kind == "cuda":
        # The device's memory is the GPU's; staging buffers and models on their way take main memory.
        return max(LEAST_MEMORY, psutil.virtual_memory().total // 2)
    return max(LEAST_MEMORY, device.memory_bytes)


def note_faults(endpoint: str) -> End:
    """Have the process record in a file (:func:`.endings.fault_path`) why it ends by its own doing.

    Returns:
        a function that ends the process, given the status and, for the operator, why.
    """
    file = open(endings.fault_path(endpoint), "wb", buffering=0)  # noqa: SIM115 - open until the process ends
    faulthandler.enable(file, all_threads=False)

    def end(status: int, why: str = "") -> NoReturn:
        if why:
            print(why, file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):
            file.write(f"exit {status} {why}".strip().encode()[:1000] + b"\n")
        os._exit(status)

    return end


def confine(device: DeviceInfo, settings: Settings, models: Path) -> None:
    """Leave this process what serving needs, before threads and models."""
    # onnxruntime reports on its use to its makers where it can.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # Confined, Python cannot keep what it compiles.
    compileall.compile_dir(_CODE, quiet=2)
    models.mkdir(mode=0o700, parents=True, exist_ok=True)
    writable = []
    if device.kind == "cuda":
        # NVML numbers GPUs by bus id; CUDA by default by speed.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        writable = [Path(os.environ.setdefault("CUDA_CACHE_PATH", str(settings.cuda_cache)))]
        writable[0].mkdir(mode=0o700, parents=True, exist_ok=True)
    if not settings.confine_executors:
        return
    isolation = confinement.confine_executor(
        [_CODE, models], private=settings.home, gpu=device.kind == "cuda", write=writable
    )
    write = log.get("executor").info if isolation.complete else log.get("executor").warning
    write("executor_confined", isolation=str(isolation), complete=isolation.complete)


def listening_socket(endpoint: str) -> socket.socket:
    """Return a unix socket at ``unix:/path`` with mode 0600, in place of a stale one.

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
    listener.setblocking(False)
    return listener


def bind(address: str) -> socket.socket | None:
    """A socket bound to ``host:port``; None: impossible, and this box is served alone."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, ValueError) as error:
        log.get("executor").error("cannot_listen", setting="NEREUS_EXECUTORS", address=address, reason=str(error))
        return None
