"""One GPU: its memory through NVML, and the errors after which this process cannot use it any more."""

from __future__ import annotations

import re
from collections.abc import Callable

from workers.protocol.endings import EXIT_GPU_LOST
from workers.protocol.specs import DeviceInfo

#: CUDA's codes after which every later call of the process fails, too: initialisation, device gone or not ready,
#: uncorrectable memory, illegal access, instruction or address, a launch that failed or timed out, unknown
_STICKY = {3, 4, 46, 100, 101, 214, 220, 304, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 802, 999}
_CUDA = re.compile(r"CUDA failure (\d+)|CU(?:BLAS|DNN)_STATUS_(EXECUTION_FAILED)")


class GpuError(Exception):
    """The GPU cannot be used; the message says why."""


def is_fatal(message: str) -> bool:
    return any(found[2] or int(found[1]) in _STICKY for found in _CUDA.finditer(message))


class GpuMemory:
    """A GPU's used memory, by index with CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Args:
        end_process: called with the exit status once NVML reports that the GPU or its driver is gone.

    Raises (constructor):
        GpuError: there is no such GPU.
    """

    def __init__(self, device: DeviceInfo, end_process: Callable[[int], None]):
        import pynvml

        self._end_process = end_process
        self._error = pynvml.NVMLError
        #: anything else may pass: a call that timed out, a driver that is busy
        self._gone = {
            pynvml.NVML_ERROR_UNINITIALIZED,
            pynvml.NVML_ERROR_NOT_FOUND,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            pynvml.NVML_ERROR_GPU_IS_LOST,
            pynvml.NVML_ERROR_RESET_REQUIRED,
            pynvml.NVML_ERROR_UNKNOWN,
        }
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(device.gpu_index or 0)
        except pynvml.NVMLError as error:
            raise GpuError(f"device {device.id}: {error}") from None
        self._read = pynvml.nvmlDeviceGetMemoryInfo
        self._used = 0

    def used(self) -> int:
        """Bytes; those of the last time where the driver gives no answer now."""
        try:
            self._used = int(self._read(self._handle).used)
        except self._error as error:
            if error.value in self._gone:
                self._end_process(EXIT_GPU_LOST)
        return self._used
