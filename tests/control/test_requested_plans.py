"""Plans are requested where they can differ, and once for each change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry import profiling, services, storage
from registry.models import Variant
from scheduler.control import requests
from scheduler.profiling import dispatch, results
from tests.control.world import application, variant
from tests.registry import graphs
from workers.protocol import control
from workers.protocol.specs import ProfilePoint

pytestmark = pytest.mark.django_db(transaction=True)
POINTS = (ProfilePoint(1, 0.01, 0.012, 0.01, 30),)


@pytest.fixture
def asked(clean_redis) -> Callable[[Callable], int]:
    """Count how often a plan is requested while a function runs."""

    def count(function: Callable) -> int:
        before = requests.plan_row().wanted
        function()
        return requests.plan_row().wanted - before

    return count


@pytest.fixture
def owner():
    return application(name="tiny")


def new(owner, state: str) -> Variant:
    made = variant(owner, "new", 95, 5, state=state)
    Variant.objects.update(digest="0" * 64)
    if state != Variant.State.READY:
        made.profiles.all().delete()
    return made


def test_an_application_without_variants_and_an_upload_ask_for_none(asked, box):
    fields = {"name": "tiny", "slo_ms": 100, "signature": graphs.SIGNATURE}
    assert asked(lambda: services.create_application(fields)) == 0
    owner = services.Application.objects.get(name="tiny")
    incoming = storage.Incoming(2**20)
    incoming.write(graphs.good())
    assert asked(lambda: services.create_variant(owner, "v", incoming, accuracy=90.0)) == 0
    assert owner.variants.get().profile_jobs.count() == 1


def test_a_finished_profile_asks_for_one(asked, box, owner):
    (job,) = profiling.order(new(owner, Variant.State.PROFILING), "registration")
    dispatch.dispatch()
    message = control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS)
    assert asked(lambda: results.done(box, message)) == 1


def test_a_finished_profile_of_a_variant_without_an_accuracy_asks_for_none(asked, box, owner):
    made = new(owner, Variant.State.PROFILING)
    Variant.objects.update(accuracy=None, accuracy_source=Variant.Source.MEASURED)
    (job,) = profiling.order(made, "registration")
    dispatch.dispatch()
    message = control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS)
    assert asked(lambda: results.done(box, message)) == 0


def test_a_failed_first_profile_asks_for_none(asked, box, owner):
    (job,) = profiling.order(new(owner, Variant.State.PROFILING), "registration")
    dispatch.dispatch()
    message = control.ProfileFailed(job=job.pk, message="first run took longer than 3 s")
    assert asked(lambda: results.failed(box, message)) == 0


@pytest.mark.parametrize(("state", "plans"), [(Variant.State.PROFILING, 0), (Variant.State.READY, 1)])
def test_changing_and_deleting_a_variant_ask_for_one_only_if_it_is_ready(asked, box, owner, state, plans):
    made = new(owner, state)
    assert asked(lambda: services.change_variant(made, {"accuracy": 90.0})) == plans
    assert asked(lambda: services.change_variant(made, {"pinned": True})) == plans
    assert asked(lambda: services.delete_variant(made)) == plans


def test_a_variant_in_use_that_is_to_drain_asks_for_one(asked, box, owner):
    made = new(owner, Variant.State.READY)
    box.devices.update(warm=[made.pk])
    assert asked(lambda: services.delete_variant(made, drain=True)) == 1


def test_a_longer_slo_asks_for_one(asked, box, owner):
    new(owner, Variant.State.READY)
    assert asked(lambda: services.change_application(owner, {"slo_ms": 400})) == 1
