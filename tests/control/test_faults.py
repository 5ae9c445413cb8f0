"""Runs that went wrong are kept and shown; what keeps crashing on a device type is left out of plans there."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from registry import profiling
from registry.models import Device, Fault, Profile
from scheduler.control.assemble import assemble
from scheduler.history.models import Mark
from scheduler.members import contents, faults
from scheduler.models import Plan
from scheduler.profiling import dispatch, results
from tests.control.test_profiling import POINTS
from tests.control.world import KIND, application, variant
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def small(box):
    return variant(application(), "small", 90, 1)


def fault(variant, cause="crashed", device="box/cpu0") -> control.FaultReport:
    return control.FaultReport(device=device, variant=variant.pk, cause=cause, detail="killed by SIGSEGV")


def crash_often(box, variant) -> None:
    for _ in range(faults.CRASHES):
        faults.record(box, fault(variant))


def blocks() -> list[tuple[str, str, str]]:
    """(variant, device type, why) of all blocks."""
    found = Profile.objects.exclude(blocked="").select_related("variant")
    return [(profile.variant.name, profile.device_type, profile.blocked) for profile in found]


def planned_on(variant) -> set[str]:
    problem = assemble({}, list(Device.objects.all()))
    return {kind for known in problem.variants if known.id == str(variant.pk) for kind in known.profiles}


def test_a_fault_is_kept_and_those_of_an_hour_are_marked_once(box, small):
    for _ in range(2):
        faults.record(box, fault(small, "stopped"))
    assert [(kept.variant, kept.device, kept.cause) for kept in Fault.objects.all()] == [
        (small, "box/cpu0", "stopped")
    ] * 2
    (shown,) = Mark.objects.filter(kind=Mark.Kind.LOST)
    assert (shown.text, shown.link) == ("digits/small on box/cpu0: killed by SIGSEGV", "/applications/digits/")


def test_what_is_gone_is_no_news(box, small):
    faults.record(box, fault(small, device="other/cpu0"))
    faults.record(box, control.FaultReport(device="box/cpu0", variant=small.pk + 1, cause="crashed", detail=""))
    assert not Fault.objects.exists()


def test_a_variant_that_keeps_crashing_is_blocked_on_that_device_type_alone(box, small):
    Profile.objects.create(variant=small, device_type="other", load_s=0.1, memory_bytes=1).latencies.create(
        batch=1, p50_ms=1, p95_ms=1, mean_ms=1, samples=20
    )
    for _ in range(faults.CRASHES - 1):
        faults.record(box, fault(small))
    assert blocks() == [] and planned_on(small) == {KIND, "other"}
    faults.record(box, fault(small))
    ((name, device_type, why),) = blocks()
    assert (name, device_type) == ("small", KIND)
    assert why.startswith(f"crashed {faults.CRASHES} times within 10 minutes, most recently at ")
    assert planned_on(small) == {"other"}


def test_a_blocked_variant_does_not_stay_loaded(box, small):
    other = variant(small.application, "other", 80, 1)
    plan = [{"device": "box/cpu0", "endpoint": "unix:/x", "residents": []}]
    Plan.objects.create(problem={}, allocation={}, wire={"version": 1, "devices": plan}, accuracy=0, served=0)

    def kept() -> set[int]:
        (device,) = contents.node_config(box.pk, contents.read().shared).plan.devices
        return set(device.may_stay)

    assert kept() == {small.pk, other.pk}
    crash_often(box, small)
    assert kept() == {other.pk}


def test_crashes_long_ago_and_stopped_runs_do_not_count(box, small):
    for _ in range(2 * faults.CRASHES):
        faults.record(box, fault(small, "stopped"))
    for _ in range(faults.CRASHES - 1):
        faults.record(box, fault(small))
    Fault.objects.update(at=timezone.now() - timedelta(seconds=faults.WINDOW_S + 1))
    faults.record(box, fault(small))
    assert blocks() == []


def test_profiling_it_again_lifts_the_block(box, small):
    crash_often(box, small)
    assert planned_on(small) == set()
    (job,) = profiling.order(small, "demand", [KIND])
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=0.1, memory_bytes=1, points=POINTS))
    assert planned_on(small) == {KIND}
    assert blocks() == []


def test_only_so_many_are_kept(box, small, monkeypatch):
    monkeypatch.setattr(faults, "KEPT", 3)
    for _ in range(5):
        faults.record(box, fault(small, "stopped"))
    assert Fault.objects.count() == 3
