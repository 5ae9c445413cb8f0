"""Sizes that change while profiles are being measured, or serve."""

from __future__ import annotations

import pytest

from registry import profiling, services
from registry.models import Profile, ProfileJob, Variant
from scheduler.profiling import dispatch, results
from tests.control import world
from tests.registry.test_shapes import signature
from tests.wild import models
from workers.protocol import control
from workers.protocol.specs import ProfilePoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def texts():
    world.node()
    made = world.application("texts", 200.0)
    made.signature, made.sizes = signature(models.TOKENS), [16, 128]
    made.save()
    return made


def begun(variant: Variant, reason: str) -> ProfileJob:
    (job,) = profiling.order(variant, reason)
    dispatch.dispatch()
    job.refresh_from_db()
    assert job.state == ProfileJob.State.RUNNING
    return job


def measured(job: ProfileJob, ms: float) -> None:
    point = ProfilePoint(1, ms / 1000, ms / 1000, ms / 1000, 20, 0)
    results.done(job.device.node, control.ProfileDone(job=job.pk, load_s=0.1, memory_bytes=1, points=(point,)))


@pytest.mark.parametrize("change", [{"sizes": [16, 512]}, {"slo_ms": 900.0}])
@pytest.mark.parametrize("state", [Variant.State.READY, Variant.State.PROFILING])
def test_what_is_being_measured_as_it_was_is_measured_anew(texts, change, state):
    variant = world.variant(texts, "v1", 90, 5, state=state)
    old = begun(variant, ProfileJob.Reason.REGISTRATION)
    services.change_application(texts, change)
    old.refresh_from_db()
    assert old.state == ProfileJob.State.CANCELLED
    dispatch.dispatch()
    (new,) = variant.profile_jobs.filter(state=ProfileJob.State.RUNNING)
    measured(old, 1000.0)
    assert Profile.objects.get(variant=variant).latencies.get(batch=1, size=0).p50_ms != 1000.0, (
        "what comes late is lost"
    )
    assert new.reason == ProfileJob.Reason.REGISTRATION and new.device_type == old.device_type
    measured(new, 7.0)
    assert Profile.objects.get(variant=variant).latencies.get(batch=1, size=0).p50_ms == 7.0
    variant.refresh_from_db()
    assert variant.state in Variant.PLANNED


def test_what_waits_to_be_measured_goes_by_what_is_then(texts):
    variant = world.variant(texts, "v1", 90, 5)
    (job,) = profiling.order(variant, ProfileJob.Reason.DEMAND)
    services.change_application(texts, {"sizes": [16, 512]})
    assert list(variant.profile_jobs.filter(state__in=profiling.OPEN)) == [job]


def test_what_is_leaving_is_not_measured_again(texts):
    variant = world.variant(texts, "v1", 90, 5, state=Variant.State.DRAINING)
    services.change_application(texts, {"sizes": [16, 512]})
    assert not variant.profile_jobs.exists()


def test_a_change_that_profiles_do_not_depend_on_disturbs_none(texts):
    job = begun(world.variant(texts, "v1", 90, 5), ProfileJob.Reason.DEMAND)
    services.change_application(texts, {"slo_ms": 150.0, "weight": 2.0})
    job.refresh_from_db()
    assert job.state == ProfileJob.State.RUNNING
