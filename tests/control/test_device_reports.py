"""Reports of devices: what is stored, planned with and measured."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from registry.models import Device, Node, ProfileJob, Variant
from scheduler.members import devices
from tests.control.world import KIND, application, node, variant
from workers.protocol.specs import DeviceState

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def box() -> Node:
    return node(devices=3, state=Device.State.DOWN)


def states(state: str) -> list[DeviceState]:
    return [DeviceState(device=f"box/cpu{number}", state=state) for number in range(3)]


def test_a_report_tells_which_devices_came_and_went(box):
    found = devices.report(box, states("up"))
    assert found.came == ["box/cpu0", "box/cpu1", "box/cpu2"] and not found.went
    assert [event["state"] for event in found.events] == ["up"] * 3
    found = devices.report(box, [DeviceState(device="box/cpu1", state="down")])
    assert found.went == ["device box/cpu1 is down"] and not found.came


def test_a_device_that_drains_neither_comes_nor_goes(box):
    devices.report(box, states("up"))
    for state in ("draining", "up"):
        found = devices.report(box, states(state))
        assert len(found.events) == 3 and not found.came and not found.went


def test_a_plan_that_moves_nothing_costs_as_much_for_many_devices_as_for_two():
    def queries(count: int) -> int:
        box = node(f"box{count}", devices=count, state=Device.State.UP)
        # Each has other variants loaded.
        held = {device.ref: (number,) for number, device in enumerate(box.devices.all())}
        for version in (1, 2):
            states = [
                DeviceState(device=ref, state="up", plan_version=version, warm=warm) for ref, warm in held.items()
            ]
            with CaptureQueriesContext(connection) as made:
                found = devices.report(box, states)
        assert len(found.events) == count
        stored = Device.objects.filter(node=box).values_list("ref", "plan_version", "warm")
        assert sorted(stored) == sorted((ref, 2, list(warm)) for ref, warm in held.items())
        return len(made)

    assert queries(2) == queries(20)


def test_a_report_without_news_differs_from_nothing_that_is_stored(box):
    assert devices.differs(box, states("up"))
    devices.report(box, states("up"))
    assert not devices.differs(box, states("up"))
    assert devices.differs(box, [DeviceState(device="box/cpu2", state="up", warm=(1,))])
    assert not devices.differs(box, [DeviceState(device="elsewhere/cpu0", state="up")]), "not its device"


def test_devices_of_one_type_that_come_together_have_what_is_missing_measured_once(box):
    measured = variant(application(), "measured", 90, 5)
    new = variant(measured.application, "new", 95, 5, state=Variant.State.PROFILING)
    new.profiles.all().delete()
    devices.report(box, states("up"))
    (job,) = ProfileJob.objects.all()
    assert (job.variant, job.device_type) == (new, KIND)
