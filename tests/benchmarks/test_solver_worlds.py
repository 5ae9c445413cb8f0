"""The worlds that solvers are measured on."""

from __future__ import annotations

import pytest

from benchmarks import solver
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("devices", [*range(1, 50), 160, 10_000])
def test_every_device_has_a_type(devices):
    counts = solver.device_counts(devices)
    assert sum(counts.values()) == devices
    assert all(abs(counts[kind] - devices * share) < 1 for kind, share in solver.TYPES.items())


def test_two_devices_are_unlike():
    assert solver.device_counts(2) == {"cpu": 1, "pascal": 1, "ampere": 0}
    assert solver.device_counts(40) == {"cpu": 20, "pascal": 10, "ampere": 10}


def variant(name: str, seconds: float) -> CandidateVariant:
    return CandidateVariant(f"{name}/0", name, 90.0, {"cpu": LatencyProfile(((1, seconds),), load_s=1.0)})


def test_what_no_device_serves_in_time_has_no_largest_demand():
    devices = [DeviceResources("cpu-0", "cpu")]
    asked = [ApplicationDemand(name, 0.3, 0.5) for name in ("quick", "slow")]
    with pytest.raises(ValueError, match="1 devices cannot serve all of 2 applications"):
        solver._most(devices, asked, [variant("quick", 0.01), variant("slow", 0.9)])
    assert solver._most(devices, asked, [variant("quick", 0.01), variant("slow", 0.01)]) == pytest.approx(100, rel=0.01)


def test_a_world_has_a_row_for_each_strategy(monkeypatch):
    def made(accuracy: float, seconds: float) -> CandidateVariant:
        profile = LatencyProfile(((1, seconds), (4, 3 * seconds)), load_s=1.0)
        return CandidateVariant(f"a/{accuracy}", "a", accuracy, dict.fromkeys(solver.TYPES, profile))

    monkeypatch.setattr(solver, "published", lambda: {"a": [made(80.0, 0.005), made(95.0, 0.02)]})
    rows = solver.measure([solver.World("devices", 4, 6, 3)])
    assert [row.strategy for row in rows] == ["nereus", "proteus"] and all(row.served > 0.99 for row in rows)
    assert solver.cells(rows[0])["devices"] == 4 and rows[0].decided
