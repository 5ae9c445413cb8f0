"""A variant is ready once gateways answer for its application, and no sooner."""

from __future__ import annotations

import pytest

from registry import profiling, usage
from registry.models import Device, Gateway, Variant
from scheduler.control import readiness
from scheduler.control.assemble import assemble, available_devices
from scheduler.profiling import dispatch, results
from tests.control.world import application, listening, node, second, seen, variant
from workers.protocol import control
from workers.protocol.specs import ProfilePoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
POINTS = (ProfilePoint(1, 0.01, 0.012, 0.01, 30),)


@pytest.fixture
def box(clean_redis):
    listening(clean_redis)
    return node()


@pytest.fixture
def owner():
    return application()


def profiled(owner, box, name: str) -> Variant:
    """A variant whose first profile has just come in."""
    made = variant(owner, name, 95, 5, state=Variant.State.PROFILING)
    made.profiles.all().delete()
    (job,) = profiling.order(made, "registration")
    dispatch.dispatch()
    results.done(box, control.ProfileDone(job=job.pk, load_s=0.3, memory_bytes=5000, points=POINTS))
    made.refresh_from_db()
    return made


def gateway(name: str, **fields) -> None:
    Gateway.objects.create(name=name, state="approved", **{"channel": f"{name}!1", **seen(), **fields})


def report(name: str, *serving: str) -> None:
    second({}, gateway=name, serving=serving)
    readiness.reported()


def state(variant: Variant) -> str:
    variant.refresh_from_db()
    return variant.state


def test_the_first_variant_is_planned_at_once_and_ready_when_a_gateway_answers(box, owner):
    gateway("g")
    first = profiled(owner, box, "first")
    assert first.state == "loading" and "once gateways answer" in first.detail
    assert [planned.name for planned in assemble({}, available_devices()).variants] == ["first"]
    report("g")
    report("g", "other")
    assert state(first) == "loading"
    report("g", "digits")
    assert (state(first), first.detail) == ("ready", "")


def test_of_several_gateways_all_must_answer(box, owner):
    gateway("g"), gateway("h")
    first = profiled(owner, box, "first")
    report("g", "digits")
    assert state(first) == "loading"
    report("h", "digits")
    assert state(first) == "ready"


def test_a_gateway_that_is_away_is_not_waited_for(box, owner):
    gateway("g")
    gateway("away", channel="")
    gateway("silent", **seen(ago=60))
    first = profiled(owner, box, "first")
    report("g", "digits")
    assert state(first) == "ready"


def test_without_a_gateway_nothing_is_answered(box, owner):
    first = profiled(owner, box, "first")
    readiness.reported()
    assert state(first) == "loading"


def test_only_the_latest_report_of_a_gateway_counts(box, owner):
    gateway("g"), gateway("h")
    first = profiled(owner, box, "first")
    report("g", "digits")
    report("g")
    report("h", "digits")
    assert state(first) == "loading"


def test_a_variant_beside_one_that_is_ready_is_ready_though_no_plan_may_ever_want_it(box, owner):
    gateway("g")
    profiled(owner, box, "first")
    report("g", "digits")
    second = profiled(owner, box, "second")
    assert (second.state, second.detail) == ("ready", "")


def test_devices_that_are_up_are_where_a_variant_is_warm(box, owner):
    made = variant(owner, "v", 95, 5)
    up, down = box.devices.order_by("ref")
    box.devices.update(warm=[made.pk])
    Device.objects.filter(pk=down.pk).update(state=Device.State.DOWN)
    assert usage.warm_on([made.pk, made.pk + 1]) == {made.pk: [up.ref]}
