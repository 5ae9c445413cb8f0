"""NVIDIA GPUs, as NVML reports them.

A box without a GPU or without the driver simply has none.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pynvml

from .. import log

#: what the pinned onnxruntime-gpu runs on
LEAST_CAPABILITY = (7, 5)

_ABSENT = (
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION,
)


@dataclass(frozen=True)
class Gpu:
    index: int  # CUDA's ordinal in a process with this environment and CUDA_DEVICE_ORDER=PCI_BUS_ID
    uuid: str
    name: str
    memory_bytes: int
    capability: str


def find(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The usable GPUs in CUDA's order, without hidden and too old ones."""
    environ = os.environ if environ is None else environ
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        # Normal on a box without a GPU; anything else deserves a line, since a GPU may be there and broken.
        if error.value not in _ABSENT:
            _warn("no_gpu", reason=str(error))
        return []
    try:
        present = [_describe(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        _warn("gpus_unreadable", reason=str(error))
        return []
    finally:
        pynvml.nvmlShutdown()
    usable = []
    for ordinal, gpu in enumerate(visible(present, environ.get("CUDA_VISIBLE_DEVICES"))):
        if tuple(int(part) for part in gpu.capability.split(".")) < LEAST_CAPABILITY:
            least = ".".join(str(part) for part in LEAST_CAPABILITY)
            _warn("gpu_too_old", name=gpu.name, capability=gpu.capability, least=least)
            continue
        usable.append(replace(gpu, index=ordinal))
    return usable


def sensors(uuid: str) -> tuple[float | None, float | None]:
    """Temperature (degrees Celsius) and power (watts) of a GPU; None: not known."""
    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            celsius = _sensor(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
            milliwatts = _sensor(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
            return celsius, None if milliwatts is None else milliwatts / 1000
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None, None


def _sensor(read: Callable[[], int]) -> float | None:
    try:
        return float(read())
    except pynvml.NVMLError:
        return None


@functools.cache
def _warn(event: str, **details: str) -> None:
    # Once each: GPUs are looked for again and again.
    log.get("devices").warning(event, **details)


def visible(present: list[Gpu], setting: str | None) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order.

    As in CUDA, entries count up to the first that names no GPU, and a list with a GPU in it twice leaves none.
    """
    if setting is None:
        return present
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.isdigit() and int(entry) < len(present):
            gpu = present[int(entry)]
        else:
            named = [gpu for gpu in present if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
            if len(named) != 1:
                break
            gpu = named[0]
        if gpu in chosen:
            return []  # CUDA refuses the whole list when a GPU is in it twice
        chosen.append(gpu)
    return chosen


def _describe(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        capability=f"{major}.{minor}",
    )
