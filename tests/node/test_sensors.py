"""Temperature and power as sensors report them."""

from __future__ import annotations

import itertools
import time
from typing import NamedTuple

import msgspec
import pytest

from tools.waiting import eventually
from workers.node import gpus
from workers.node.sensors import SensorThread, package_celsius
from workers.protocol import control
from workers.protocol.specs import MOST_CELSIUS, MOST_WATTS, DeviceInfo, DeviceStats


class Entry(NamedTuple):
    label: str
    current: float
    high: float | None = None
    critical: float | None = None


def cpu(number: int, *cores: int) -> DeviceInfo:
    return DeviceInfo(f"box/cpu{number}", "cpu", "cpu-a", "cores", cores, None, 2**30, f"unix:/tmp/{number}.sock")


def stats(**more) -> DeviceStats:
    return DeviceStats("box/cpu0", 0.5, 0.0, 0, 1000, 1, **more)


def test_a_package_has_its_own_sensors_temperature():
    chips = {
        "nvme": [Entry("Composite", 71.0)],
        "coretemp": [Entry("Package id 0", 50.0), Entry("Core 0", 55.0), Entry("Package id 1", 60.0)],
    }
    assert (package_celsius(chips, 0), package_celsius(chips, 1)) == (50.0, 60.0)
    assert package_celsius({"k10temp": [Entry("Tctl", 45.0), Entry("Tccd1", 47.5)]}, 0) == 47.5


@pytest.mark.parametrize("wrong", [0.0, -273.2, 2.0**31, float("nan")])
def test_what_cannot_be_a_temperature_is_none(wrong):
    assert package_celsius({"coretemp": [Entry("Package id 0", wrong)]}, 0) is None
    assert package_celsius({"nvme": [Entry("Composite", 40.0)]}, 0) is None


def test_this_box_tells_what_can_be_true_or_nothing():
    for reading in SensorThread(lambda: [cpu(0, 0)]).read().values():
        assert reading.watts is None and (reading.celsius is None or 0 < reading.celsius <= MOST_CELSIUS)
    for gpu in gpus.find():
        celsius, watts = gpus.sensors(gpu.uuid)
        assert celsius is None or 0 < celsius <= MOST_CELSIUS
        assert watts is None or 0 < watts <= MOST_WATTS
    assert gpus.sensors("GPU-00000000-0000-0000-0000-000000000000") == (None, None)


def test_a_second_has_the_latest_reading_and_none_that_is_old(monkeypatch):
    monkeypatch.setattr("workers.node.sensors.EVERY_S", 0.02)
    warming = itertools.count(1.0)
    monkeypatch.setattr(
        "workers.node.sensors.psutil.sensors_temperatures", lambda: {"coretemp": [Entry("Package id 0", next(warming))]}
    )
    thread = SensorThread(lambda: [cpu(0, 0)])
    assert thread.added(stats()) == stats()
    thread.start()
    try:
        eventually(lambda: (thread.added(stats()).celsius or 0.0) >= 2.0)
    finally:
        thread.stop()
    assert thread.added(stats()).busy == 0.5
    steady = time.monotonic
    monkeypatch.setattr("workers.node.sensors.time.monotonic", lambda: steady() + 60)
    assert thread.added(stats()) == stats()


def test_the_wire_carries_readings_bounds_them_and_takes_older_members_seconds():
    message = control.NodeStats(devices=(stats(celsius=61.5, watts=40.25),), plan_version=1, config_hash="")
    (back,) = control.decode_from_node(control.encode(message)).devices
    assert (back.celsius, back.watts) == (61.5, 40.25)
    older = {key: value for key, value in msgspec.to_builtins(stats()).items() if key not in ("celsius", "watts")}
    assert msgspec.convert(older, DeviceStats) == stats()
    for wrong in ({"celsius": 1e6}, {"celsius": -1.0}, {"watts": 1e9}, {"watts": -0.5}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(older | wrong, DeviceStats)
