"""Temperature of this box's devices, and power of its GPUs.

NVML has those of GPUs, the kernel's sensors the CPUs' temperature. Much of it is often missing: virtual machines have
no sensors. A value that is not known, or cannot be true, is None. Everything is read in one thread of its own, since a
driver may hang; a reading that is too old counts as none.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import psutil
import pynvml

from .. import log
from ..protocol.specs import MOST_CELSIUS, MOST_WATTS, DeviceInfo, DeviceStats
from . import devices, gpus

#: seconds between two readings, and after which one counts as none
EVERY_S, OLD_S = 2.0, 10.0
#: drivers whose temperatures are a CPU's, the most telling label of each first; others are disks, boards, radios
CPU_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal")


class Reading(NamedTuple):
    """Degrees Celsius and watts; None: not known."""

    celsius: float | None = None
    watts: float | None = None


NOTHING = Reading()


def bounded(value: float | None, most: float) -> float | None:
    """The value where it can be true: broken sensors give 0, -273 or 2**32."""
    return value if value is not None and 0 < value <= most else None


def package_celsius(chips: Mapping[str, Sequence], package: int) -> float | None:
    """Temperature of a CPU package, else of its chip's warmest sensor; None: unknown."""
    for name in CPU_CHIPS:
        entries = [entry for entry in chips.get(name, ()) if bounded(entry.current, MOST_CELSIUS) is not None]
        own = [entry for entry in entries if re.fullmatch(rf"(Package|Physical) id {package}", entry.label or "")]
        if entries:
            return max(entry.current for entry in own or entries)
    return None


class SensorThread:
    """Reads every :data:`EVERY_S` seconds. ``present``: the devices as of now."""

    def __init__(self, present: Callable[[], Sequence[DeviceInfo]]) -> None:
        self._present = present
        self._uuids: dict[int, str] = {}
        self._latest: tuple[float, dict[str, Reading]] = (0.0, {})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read no more; a reading that hangs is not waited for."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._latest = time.monotonic(), self.read()
            except (OSError, ValueError, pynvml.NVMLError) as error:
                log.get("sensors").warning("sensors_unreadable", reason=str(error))
            self._ended.wait(EVERY_S)

    def read(self) -> dict[str, Reading]:
        """Readings by device id."""
        chips = psutil.sensors_temperatures()
        readings = {}
        for device in self._present():
            if device.gpu_index is not None:
                if device.gpu_index not in self._uuids:
                    self._uuids = {gpu.index: gpu.uuid for gpu in gpus.find()}
                celsius, watts = gpus.sensors(self._uuids.get(device.gpu_index, ""))
                readings[device.id] = Reading(bounded(celsius, MOST_CELSIUS), bounded(watts, MOST_WATTS))
            elif chips:
                packages = set(devices.packages(device.cores).values())
                warmest = [value for one in packages if (value := package_celsius(chips, one)) is not None]
                readings[device.id] = Reading(max(warmest, default=None))
        return readings

    def added(self, stats: DeviceStats) -> DeviceStats:
        """A device's second with its latest reading."""
        at, readings = self._latest
        reading = readings.get(stats.device, NOTHING)
        if reading == NOTHING or time.monotonic() - at > OLD_S:
            return stats
        return msgspec.structs.replace(stats, celsius=reading.celsius, watts=reading.watts)
