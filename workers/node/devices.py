"""Devices on which this box can serve: partitions of its CPU cores, and GPUs.

``NEREUS_CPU_DEVICES`` partitions the cores; the GPUs are NVIDIA's. A device's ``type`` is equal on equal hardware, so
that one measured profile serves all devices of a type.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from .. import disk, log, topology
from ..partition import VARIABLE, partition, ranges
from ..protocol.specs import DeviceInfo
from ..settings import SOCKET_PATH_LIMIT, Settings, SettingsError
from ..topology import Topology
from . import gpus
from .division import divide


def find(settings: Settings, present: Iterable[DeviceInfo] = ()) -> tuple[DeviceInfo, ...]:
    """Return all devices of this box that the settings allow, CPU devices first.

    They are numbered from 0 within their kind.

    Args:
        present: devices that there are: CPU devices with the same cores keep their names, others get free ones.

    Raises:
        SettingsError: more cores are asked for than this process may use, or there is nothing to serve on.
    """
    box = topology.read()
    named = {device.cores: device.id for device in present if device.kind == "cpu"}
    taken = set(named.values())
    free = (id for number in itertools.count() if (id := f"{settings.node_name}/cpu{number}") not in taken)
    found = [
        _cpu_device(settings, named.get(cores) or next(free), cores, box) for cores in _parts(settings.cpu_devices, box)
    ]
    if settings.gpu:
        found += [_gpu_device(settings, number, gpu) for number, gpu in enumerate(gpus.find())]
    if not found:
        raise SettingsError([f"{VARIABLE}={settings.cpu_devices!r}: leaves this node without a device; no GPU is used"])
    return tuple(found)


def expected(settings: Settings) -> int:
    """The most devices that :func:`find` finds; asks no driver, which may hang."""
    gpu_files = Path("/dev").glob("nvidia[0-9]*") if settings.gpu else ()
    return len(_parts(settings.cpu_devices, topology.read())) + len(list(gpu_files))


def _parts(spec: str, box: Topology) -> Sequence[tuple[int, ...]]:
    if spec == "auto":
        return divide(box, keep=False).devices
    return partition(spec, box.usable, packages(box.usable))


async def appeared(settings: Settings, present: Iterable[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """Devices that are not ``present`` yet, such as a GPU whose driver came late."""
    names = {device.id for device in present}
    try:
        found = await asyncio.to_thread(find, settings, present)
    except SettingsError:
        # Cores that were there are gone for now; their executors report it.
        return ()
    return tuple(device for device in found if device.id not in names)


def packages(cores: Sequence[int], root: Path = Path("/sys/devices/system/cpu")) -> dict[int, int]:
    """The physical package of each core; 0 where the kernel does not report it."""
    package_of = {}
    for core in cores:
        try:
            # -1 on virtual machines that hide their topology
            package_of[core] = max(0, int((root / f"cpu{core}/topology/physical_package_id").read_text()))
        except (OSError, ValueError):
            package_of[core] = 0
    return package_of


def _cpu_device(settings: Settings, id: str, cores: tuple[int, ...], box: Topology) -> DeviceInfo:
    # Cores of two models in one device are as fast as neither.
    model = " and ".join(sorted({box.model_of[core] for core in cores}))
    physical = len({box.core_of[core] for core in cores})
    threads = f"{len(cores)}t" if len(cores) > physical else ""
    return DeviceInfo(
        id=id,
        kind="cpu",
        type=f"cpu-{slug(model)}-{physical}c{threads}",
        description=f"{physical} {'core' if physical == 1 else 'cores'} ({ranges(cores)}) of {model}"[:200],
        cores=cores,
        gpu_index=None,
        memory_bytes=int(memory_bytes() * settings.device_memory_share) * len(cores) // len(box.usable),
        endpoint=endpoint(settings, id.rpartition("/")[2]),
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
    """The executor's unix socket; SettingsError where its path is too long."""
    path = settings.socket_folder / f"{disk.safe_name(settings.node_name, 24)}-{short}.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise SettingsError([f"NEREUS_HOME={settings.home}: too deep; {path} is longer than {SOCKET_PATH_LIMIT} bytes"])
    return f"unix:{path}"


def memory_bytes(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Main memory that this process may use: the box's or its control group's."""
    total = psutil.virtual_memory().total
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):  # no cgroup v2 here, or "max"
        return total


def slug(name: str) -> str:
    """``name`` as at most 60 lower-case letters and dashes, without trademarks."""
    text = re.sub(r"\((r|tm|c)\)", " ", name.lower())
    text = re.sub(r"\b(cpu|processor|nvidia|\d+-core)\b|@", " ", text)
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.")[:60].rstrip("-.") or "unknown"


def log_found(devices: Sequence[DeviceInfo]) -> None:
    for device in devices:
        log.get("devices").info("device", id=device.id, device_type=device.type, description=device.description)
