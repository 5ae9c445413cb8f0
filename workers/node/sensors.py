"""Temperature and power of this box's devices.

NVML has those of GPUs, the kernel's sensors and RAPL those of CPUs.

Much of it is often missing: virtual machines have no sensors, and RAPL's counters are readable for root alone. A value
that is not known, or cannot be true, is None. Everything is read in one thread of its own, since a driver may hang; a
reading that is too old counts as none.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
POWERCAP = Path("/sys/class/powercap")


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


class PackagePower:
    """Power of CPU packages in watts, by RAPL's energy counters as far as readable."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._root = root
        self._last: dict[int, tuple[int, float]] = {}

    def read(self, now: float) -> dict[int, float]:
        """Mean watts by package since the last call."""
        watts = {}
        for folder in self._root.glob("intel-rapl:*"):
            match = re.fullmatch(r"intel-rapl:\d+", folder.name)
            try:
                package = re.fullmatch(r"package-(\d+)", (folder / "name").read_text().strip())
                energy = int((folder / "energy_uj").read_text())
                most = int((folder / "max_energy_range_uj").read_text())
            except (OSError, ValueError):
                continue
            if not match or not package:
                continue
            number = int(package[1])
            before, self._last[number] = self._last.get(number), (energy, now)
            if before is not None and now > before[1]:
                # The counter begins anew at its largest value.
                used = energy - before[0] if energy >= before[0] else energy + most - before[0]
                watts[number] = used / 1e6 / (now - before[1])
        return watts


class Sensors:
    """Reads the devices of a box; the thread's part."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._power = PackagePower(powercap)
        self._uuids: dict[int, str] = {}

    def read(self, present: Sequence[DeviceInfo], now: float) -> dict[str, Reading]:
        """Readings by device id; devices without any are left out."""
        readings = self._cpus([device for device in present if device.kind == "cpu"], now)
        graphics = {device.id: device.gpu_index for device in present if device.gpu_index is not None}
        if graphics:
            readings |= self._gpus(graphics)
        return {id: reading for id, reading in readings.items() if reading != NOTHING}

    def _cpus(self, present: Sequence[DeviceInfo], now: float) -> dict[str, Reading]:
        if not present:
            return {}
        try:
            chips = psutil.sensors_temperatures()
        except (AttributeError, OSError):
            chips = {}
        power = self._power.read(now)
        every = _cores_by_package()
        package_of = {core: package for package, cores in every.items() for core in cores}
        readings = {}
        for device in present:
            packages = sorted({package_of.get(core, 0) for core in device.cores})
            warmest = [value for one in packages if (value := package_celsius(chips, one)) is not None]
            # The kernel does not say what cores use: a device gets its cores' part of its packages' power.
            watts = [
                power[one] * len(set(device.cores) & every[one]) / len(every[one]) for one in packages if one in power
            ]
            readings[device.id] = Reading(
                max(warmest, default=None),
                bounded(sum(watts), MOST_WATTS) if packages and len(watts) == len(packages) else None,
            )
        return readings

    def _gpus(self, graphics: Mapping[str, int]) -> dict[str, Reading]:
        if not set(graphics.values()) <= self._uuids.keys():
            self._uuids = {gpu.index: gpu.uuid for gpu in gpus.find()}
        readings = {}
        for id, index in graphics.items():
            if index in self._uuids:
                celsius, watts = gpus.sensors(self._uuids[index])
                readings[id] = Reading(bounded(celsius, MOST_CELSIUS), bounded(watts, MOST_WATTS))
        return readings


def _cores_by_package() -> dict[int, set[int]]:
    cores: dict[int, set[int]] = {}
    for core, package in devices.packages(range(psutil.cpu_count() or 1)).items():
        cores.setdefault(package, set()).add(core)
    return cores


class SensorThread:
    """Reads every :data:`EVERY_S` seconds. ``present``: the devices as of now."""

    def __init__(self, present: Callable[[], Sequence[DeviceInfo]], sensors: Sensors | None = None) -> None:
        self._present, self._sensors = present, sensors or Sensors()
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
                now = time.monotonic()
                self._latest = now, self._sensors.read(self._present(), now)
            except (OSError, ValueError, pynvml.NVMLError) as error:
                log.get("sensors").warning("sensors_unreadable", reason=str(error))
            self._ended.wait(EVERY_S)

    def added(self, stats: DeviceStats) -> DeviceStats:
        """A device's second with its latest reading."""
        at, readings = self._latest
        reading = readings.get(stats.device, NOTHING)
        if reading == NOTHING or time.monotonic() - at > OLD_S:
            return stats
        return msgspec.structs.replace(stats, celsius=reading.celsius, watts=reading.watts)
