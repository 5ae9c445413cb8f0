"""Variants that queries request stand by for a while, where there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from registry import clock
from registry.models import Device, Profile, Variant
from scheduler import telemetry
from scheduler.allocation.problem import Allocation
from scheduler.control import choices, planner, requested_variants
from scheduler.control.standby import MEMORY_SHARE, standby_variants
from tests.allocation.worlds import problems
from tests.control.world import application, listening, node, requested, variant
from tests.examples import examples
from workers.gateway.totals import merged
from workers.protocol.control import GatewayStats
from workers.protocol.specs import ApplicationStats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world(clean_redis):
    """One device, and a stack that places one variant on it and loads no other."""
    listening(clean_redis)
    node(devices=1)
    choices.change("proteus", "a test")
    requested()
    requested_variants._looked_up.clear()
    app = application()
    made = [("quick", 80, 2), ("good", 90, 5), ("better", 92, 8), ("best", 95, 160)]
    return {name: variant(app, name, accuracy, ms) for name, accuracy, ms in made}


def plan() -> tuple[set[str], set[str]]:
    devices = planner.make_plan("manual").wire["devices"]
    return tuple({one["variant"]["name"] for d in devices for one in d[kind]} for kind in ("residents", "relief"))


def ask(**stats) -> None:
    """A gateway's second in which queries requested something."""
    stats = GatewayStats(applications={"digits": ApplicationStats(arrived=1, arrived_rows=1, **stats)}, ready=True)
    known = {"digits": set(Variant.objects.values_list("name", flat=True))}
    second = telemetry.gateway_second("gate", stats, clock.wall(), None, known)
    requested_variants.record(requested_variants.requests_of(second))


def test_a_named_variant_stands_by_for_a_while(world, later):
    assert plan() == ({"better"}, set())
    ask(named={"best": 2, "unheard-of": 1})
    assert requested() == ["queries request digits/best"]
    assert plan() == ({"better"}, {"best"})
    later(requested_variants.KEPT_S - 1)
    ask(named={"best": 1})
    later(requested_variants.KEPT_S - 1)
    assert plan() == ({"better"}, {"best"})
    later(2)
    assert plan() == ({"better"}, set())
    assert not requested(), "it stayed requested"


def test_for_a_least_accuracy_a_loaded_variant_is_meant_else_the_quickest(world, later):
    ask(least_accuracy=85.0)
    assert requested_variants.current() == {world["good"].pk}
    Device.objects.update(warm=[world["better"].pk])
    ask(least_accuracy=91.0)
    assert requested_variants.current() == {world["good"].pk, world["better"].pk}
    ask(least_accuracy=99.0)
    assert len(requested_variants.current()) == 2, "nothing is so accurate"


def test_what_answers_nowhere_in_time_is_never_meant(world, later):
    Profile.objects.filter(variant=world["good"]).update(blocked=True)
    ask(least_accuracy=85.0)
    assert requested_variants.current() == {world["better"].pk}
    world["best"].application.slo_ms = 100
    world["best"].application.save()
    ask(named={"best": 1})
    assert requested_variants.current() == {world["better"].pk}
    Device.objects.update(type="another")
    ask(named={"quick": 1})
    assert requested_variants.current() == {world["better"].pk}


def test_memory_keeps_its_free_part(world):
    # Two variants of 1 MiB fit into the part that may be used.
    Device.objects.update(memory_bytes=int(2 * 2**20 / MEMORY_SHARE))
    ask(named={"best": 1})
    assert plan() == ({"better"}, {"best"})
    Device.objects.update(memory_bytes=int(2 * 2**20 / MEMORY_SHARE) - 1)
    assert plan() == ({"better"}, set())


def test_the_first_ones_stay_and_excluded_ones_do_not(world, later, monkeypatch):
    monkeypatch.setattr(requested_variants, "MOST", 2)
    for name in ("quick", "best", "good", "better"):
        ask(named={name: 1})
        later(10)
    assert requested_variants.current() == {world["quick"].pk, world["best"].pk}
    assert plan() == ({"better"}, {"quick", "best"})
    Variant.objects.filter(name="best").update(excluded=True)
    assert plan() == ({"better"}, {"quick"})


def test_the_same_request_is_looked_up_once_in_a_while(world, later):
    ask(named={"best": 1}, least_accuracy=85.0)
    nothing = {"applications": {"digits": {"named": {}, "least_accuracy": None}, "faces": {}}}
    assert requested_variants.requests_of(nothing) == []
    for _ in range(3):
        with CaptureQueriesContext(connection) as queries:
            ask(named={"best": 1}, least_accuracy=85.0)
        assert len(queries) == 1, "the test's own"
    later(requested_variants.FRESH_S + 1)
    with CaptureQueriesContext(connection) as queries:
        ask(named={"best": 1}, least_accuracy=85.0)
    assert len(queries) > 1


@examples(20)
@given(problem=problems(), requested=st.sets(st.integers(0, 8)))
def test_each_requested_variant_stands_by_once_within_memory(problem, requested):
    names = {v.id: str(number) for number, v in enumerate(problem.variants)}
    problem = replace(problem, variants=tuple(replace(v, id=names[v.id]) for v in problem.variants))
    nothing = Allocation((), {}, {a.id: a.demand for a in problem.applications}, 0.0)
    found = standby_variants(problem, nothing, requested)
    stands = [variant for some in found.values() for variant in some]
    assert len(stands) == len(set(stands)) and set(stands) <= {str(number) for number in requested}
    profiles = {v.id: v.profiles for v in problem.variants}
    for device in problem.devices:
        here = found.get(device.id, [])
        assert device.max_resident is None or len(here) <= device.max_resident
        taken = sum(profiles[variant][device.type].memory_bytes for variant in here)
        assert device.memory_bytes is None or taken <= MEMORY_SHARE * device.memory_bytes or not here


def test_fronts_requests_add_up():
    one = {"digits": ApplicationStats(named={"best": 1}, least_accuracy=80.0)}
    other = {"digits": ApplicationStats(named={"best": 2, "good": 1}, least_accuracy=70.0)}
    (total,) = merged([one, other]).values()
    assert total.named == {"best": 3, "good": 1} and total.least_accuracy == 80.0
