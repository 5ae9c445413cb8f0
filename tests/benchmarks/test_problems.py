"""Problems that plan searches are measured on."""

from __future__ import annotations

import pytest

from benchmarks import problems
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("devices", [*range(1, 50), 160, 10_000])
def test_every_device_has_a_type(devices):
    counts = problems.device_counts(devices)
    assert sum(counts.values()) == devices
    assert all(abs(counts[kind] - devices * share) < 1 for kind, share in problems.TYPES.items())


def test_two_devices_are_unlike():
    assert problems.device_counts(2) == {"cpu": 1, "pascal": 1, "ampere": 0}
    assert problems.device_counts(40) == {"cpu": 20, "pascal": 10, "ampere": 10}


def variant(name: str, seconds: float) -> CandidateVariant:
    return CandidateVariant(f"{name}/0", name, 90.0, {"cpu": LatencyProfile(((1, seconds),), load_s=1.0)})


def test_what_no_device_serves_in_time_has_no_largest_demand():
    devices = [DeviceResources("cpu-0", "cpu")]
    asked = [ApplicationDemand(name, 0.3, 0.5) for name in ("quick", "slow")]
    with pytest.raises(ValueError, match="1 devices cannot serve all of 2 applications"):
        problems.most(devices, asked, [variant("quick", 0.01), variant("slow", 0.9)])
    assert problems.most(devices, asked, [variant("quick", 0.01), variant("slow", 0.01)]) == pytest.approx(
        100, rel=0.01
    )
