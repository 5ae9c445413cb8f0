"""Finds what this box can serve on: CPU cores, partitioned by ``NEREUS_CPU_DEVICES``, and NVIDIA GPUs.

A device's ``type`` is equal on equal hardware, so that one measured profile serves all devices of a type.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import psutil

from .. import disk, log
from ..protocol.specs import DeviceInfo
from ..settings import SOCKET_PATH_LIMIT, Settings, SettingsError
from . import gpus

VARIABLE = "NEREUS_CPU_DEVICES"


def find(settings: Settings) -> tuple[DeviceInfo, ...]:
    """All devices of this box that the settings allow, CPU devices first, numbered from 0 within their kind.

    Raises:
        SettingsError: more cores are asked for than this process may use, or there is nothing to serve on.
    """
    usable = sorted(os.sched_getaffinity(0))
    found = [
        _cpu_device(settings, number, cores, len(usable))
        for number, cores in enumerate(partition(settings.cpu_devices, usable, packages(usable)))
    ]
    if settings.gpu:
        found += [_gpu_device(settings, number, gpu) for number, gpu in enumerate(gpus.find())]
    if not found:
        raise SettingsError([f"{VARIABLE}={settings.cpu_devices!r}: leaves this node without a device; no GPU is used"])
    return tuple(found)


def expected(settings: Settings) -> int:
    """How many devices :func:`find` finds at most, without asking a driver, which may hang.

    Raises:
        SettingsError: as :func:`find`, for cores.
    """
    usable = sorted(os.sched_getaffinity(0))
    gpu_files = Path("/dev").glob("nvidia[0-9]*") if settings.gpu else ()
    return len(partition(settings.cpu_devices, usable, packages(usable))) + len(list(gpu_files))


async def appeared(settings: Settings, present: Collection[str]) -> tuple[DeviceInfo, ...]:
    """Devices that are not among ``present`` (ids): of a GPU whose driver came late, or was loaded again."""
    try:
        found = await asyncio.to_thread(find, settings)
    except SettingsError:
        # Cores that were there are gone for now; their executors report it.
        return ()
    return tuple(device for device in found if device.id not in present)


def partition(spec: str, usable: Sequence[int], package_of: Mapping[int, int]) -> list[tuple[int, ...]]:
    """CPU cores by device.

    Args:
        spec: ``auto`` (one device per physical package, with all its usable cores), ``none``, ``COUNTxCORES``, or core
            lists such as ``0-1;2,3``, one a device.
        usable: the cores that this process may run on, best first (``COUNTxCORES`` takes them in this order, one
            package after the other, so that no device spans two packages unless it must).
        package_of: physical package by core.

    Raises:
        SettingsError: a core is named twice or cannot be used, or there are too few.
    """
    if spec == "none":
        return []
    by_package: dict[int, list[int]] = {}
    for core in usable:
        by_package.setdefault(package_of.get(core, 0), []).append(core)
    if spec == "auto":
        return [tuple(sorted(cores)) for _, cores in sorted(by_package.items())]
    if match := re.fullmatch(r"(\d+)x(\d+)", spec):
        return _equal_parts(spec, int(match[1]), int(match[2]), [cores for _, cores in sorted(by_package.items())])
    return _listed(spec, set(usable))


def _equal_parts(spec: str, count: int, size: int, groups: list[list[int]]) -> list[tuple[int, ...]]:
    available = sum(len(group) for group in groups)
    if count * size > available:
        raise SettingsError(
            [
                f"{VARIABLE}={spec!r}: asks for {count * size} cores ({count} devices with {size} each), but this "
                f"process may use {available}"
            ]
        )
    parts: list[tuple[int, ...]] = []
    left: list[int] = []
    for group in groups:
        whole = len(group) // size * size
        parts += [tuple(sorted(group[i : i + size])) for i in range(0, whole, size)]
        left += group[whole:]
    parts += [tuple(sorted(left[i : i + size])) for i in range(0, len(left) // size * size, size)]
    return parts[:count]


def _listed(spec: str, usable: set[int]) -> list[tuple[int, ...]]:
    problems, taken, parts = [], set(), []
    for part in spec.split(";"):
        cores: set[int] = set()
        for piece in part.split(","):
            first, _, last = piece.partition("-")
            low, high = int(first), int(last or first)
            if low > high:
                problems.append(f"{VARIABLE}={spec!r}: the range {piece} runs backwards")
                continue
            if high > max(usable):
                # Said without walking through the range, which may be absurdly long.
                problems.append(f"{VARIABLE}={spec!r}: core {high} is not among the usable cores {_ranges(usable)}")
                continue
            cores |= set(range(low, high + 1))
        problems += [
            f"{VARIABLE}={spec!r}: core {core} is not among the usable cores {_ranges(usable)}"
            for core in sorted(cores - usable)
        ]
        problems += [f"{VARIABLE}={spec!r}: core {core} is in two devices" for core in sorted(cores & taken)]
        taken |= cores
        parts.append(tuple(sorted(cores)))
    if problems:
        raise SettingsError(problems)
    return parts


def packages(cores: Sequence[int], root: Path = Path("/sys/devices/system/cpu")) -> dict[int, int]:
    """The physical package of each core; 0 where the kernel does not report it."""
    found = {}
    for core in cores:
        try:
            # -1 on virtual machines that hide their topology
            found[core] = max(0, int((root / f"cpu{core}/topology/physical_package_id").read_text()))
        except (OSError, ValueError):
            found[core] = 0
    return found


def _cpu_device(settings: Settings, number: int, cores: tuple[int, ...], usable: int) -> DeviceInfo:
    model = cpu_model()
    return DeviceInfo(
        id=f"{settings.node_name}/cpu{number}",
        kind="cpu",
        type=f"cpu-{slug(model)}-{len(cores)}c",
        description=f"{len(cores)} {'core' if len(cores) == 1 else 'cores'} ({_ranges(cores)}) of {model}"[:200],
        cores=cores,
        gpu_index=None,
        memory_bytes=int(memory_bytes() * settings.device_memory_share) * len(cores) // usable,
        endpoint=endpoint(settings, f"cpu{number}"),
    )


def _gpu_device(settings: Settings, number: int, gpu: gpus.Gpu) -> DeviceInfo:
    return DeviceInfo(
        id=f"{settings.node_name}/gpu{number}",
        kind="cuda",
        type=f"cuda-{slug(gpu.name)}-{round(gpu.memory_bytes / 2**30)}g",
        description=f"{gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, compute capability {gpu.capability}"[:200],
        cores=(),
        gpu_index=gpu.index,
        memory_bytes=gpu.memory_bytes,
        endpoint=endpoint(settings, f"gpu{number}"),
    )


def endpoint(settings: Settings, short: str) -> str:
    """The executor's unix socket.

    Raises:
        SettingsError: the path does not fit into a socket address.
    """
    path = settings.socket_folder / f"{disk.safe_name(settings.node_name, 24)}-{short}.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise SettingsError([f"NEREUS_HOME={settings.home}: too deep; {path} is longer than {SOCKET_PATH_LIMIT} bytes"])
    return f"unix:{path}"


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's marketing name, as the kernel reports it."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else os.uname().machine


def memory_bytes(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Main memory that this process may use: the box's, or its control group's limit where that is smaller."""
    total = psutil.virtual_memory().total
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):  # no cgroup v2 here, or "max"
        return total


def slug(name: str) -> str:
    """``name`` as lower-case words joined by dashes, without trademarks and filler, at most 60 characters."""
    text = re.sub(r"\((r|tm|c)\)", " ", name.lower())
    text = re.sub(r"\b(cpu|processor|nvidia|\d+-core)\b|@", " ", text)
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.")[:60].rstrip("-.") or "unknown"


def _ranges(cores) -> str:
    """Cores as an operator writes them: 0-3,6."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def log_found(devices: Sequence[DeviceInfo]) -> None:
    """One line a device, for the operator."""
    for device in devices:
        log.get("devices").info("device", id=device.id, device_type=device.type, description=device.description)
