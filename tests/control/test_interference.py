"""An interfered device counts less in plans.

It is slower than its profiles, while others of its type are not.
"""

from __future__ import annotations

import json
import time

import pytest

from registry.models import Device, ProfileJob
from scheduler import live, telemetry
from scheduler.control import planner
from scheduler.instances import interference
from scheduler.instances.interference import KEY, interfered_shares, watch
from scheduler.profiling import results
from tests.control.world import KIND, application, listening, node, variant
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world(clean_redis, monkeypatch):
    """Two devices of a type that hold the same variant.

    Plans go by what is seen at the first look.
    """
    monkeypatch.setattr(interference, "CONFIRMED_S", -1.0)
    listening(clean_redis)
    box = node(devices=2)
    made = variant(application(), "best", 90, 10)
    Device.objects.update(warm=[made.pk])
    return box, made


def ran(made, **drift: float) -> None:
    """A second in which each device ran 20 rows at this multiple of its profile."""
    devices = [
        {
            "device": f"box/{name}",
            "variants": [{"variant": made.pk, "rows": 20, "batches": 10, "busy_s": 0.4, "drift": ratio}],
        }
        for name, ratio in drift.items()
    ]
    telemetry.record(telemetry.NODE_STREAM, {"t": time.time(), "node": "box", "devices": devices})


def available() -> dict[str, float]:
    plan = planner.make_plan("manual")
    return {device["id"]: device["available"] for device in plan.problem["devices"]}


def test_plans_count_on_less_of_an_interfered_device_until_it_recovers(world, later):
    _, made = world
    ran(made, cpu0=1.8, cpu1=1.0)
    watch()
    assert interfered_shares() == {"box/cpu0": pytest.approx(1 / 1.8)}
    assert available() == {"box/cpu0": pytest.approx(1 / 1.8), "box/cpu1": 1.0}
    ran(made, cpu0=1.0, cpu1=1.0)
    watch()
    assert available() == {"box/cpu0": 1.0, "box/cpu1": 1.0}


def test_it_must_last_and_the_largest_loss_is_half(world, later, monkeypatch):
    _, made = world
    monkeypatch.setattr(interference, "CONFIRMED_S", 8.0)
    ran(made, cpu0=5.0, cpu1=1.0)
    watch()
    assert interfered_shares() == {}
    later(9)
    ran(made, cpu0=5.0, cpu1=1.0)
    watch()
    assert interfered_shares() == {"box/cpu0": 0.5}


def test_where_all_devices_of_a_type_are_slow_the_profile_is_wrong(world, later):
    _, made = world
    ran(made, cpu0=1.8, cpu1=1.7)
    watch()
    assert interfered_shares() == {}


def test_an_interfered_device_does_not_order_a_new_profile(world, later):
    box, made = world
    made.profiles.update(measured="2020-01-01T00:00:00Z")
    ran(made, cpu0=1.8, cpu1=1.0)
    watch()
    results.drifted(box, control.Drift(device="box/cpu0", variant=made.pk, ratio=1.8))
    assert not ProfileJob.objects.exists()
    results.drifted(box, control.Drift(device="box/cpu1", variant=made.pk, ratio=1.8))
    assert ProfileJob.objects.get().device_type == KIND


def test_one_that_runs_nothing_any_more_is_tried_again(world, later, monkeypatch):
    _, made = world
    ran(made, cpu0=1.8, cpu1=1.0)
    watch()
    assert interfered_shares()
    monkeypatch.setattr(interference, "FORGOTTEN_S", -1.0)
    live.client().delete(telemetry.NODE_STREAM)
    watch()
    assert interfered_shares() == {} and json.loads(live.client().get(KEY)) == {}
