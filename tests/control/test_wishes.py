"""Variants that queries ask for are loaded, and kept for a while."""

from __future__ import annotations

import pytest

from registry import clock
from registry.models import Device, Variant
from scheduler import telemetry
from scheduler.control import choices, planner, requests, wishes
from tests.control.world import application, listening, node, variant
from workers.gateway.reports import merged
from workers.protocol.control import GatewayStats
from workers.protocol.specs import ApplicationStats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world(clean_redis):
    """One device, and a stack that places one variant on it and loads no other."""
    listening(clean_redis)
    node(devices=1)
    choices.change("proteus", "a test")
    requests.started()
    app = application()
    return {name: variant(app, name, accuracy, ms) for name, accuracy, ms in
            (("quick", 80, 2), ("good", 90, 5), ("better", 92, 8), ("best", 95, 160))}  # fmt: skip


@pytest.fixture
def requested(monkeypatch):
    """The details of plans that were requested."""
    found = []
    monkeypatch.setattr(requests.queue, "send", lambda name, **given: found.append(given["detail"]))
    return found


def resident() -> set[str]:
    plan = planner.make_plan("manual")
    return {one["variant"]["name"] for device in plan.wire["devices"] for one in device["residents"]}


def ask(**stats) -> None:
    """A gateway's second in which queries asked for something."""
    stats = GatewayStats(applications={"digits": ApplicationStats(arrived=1, arrived_rows=1, **stats)}, ready=True)
    known = {"digits": set(Variant.objects.values_list("name", flat=True))}
    second = telemetry.gateway_second("gate", stats, clock.wall(), None, known)
    wishes.asked(second)


def test_a_named_variant_is_loaded_beside_what_is_placed_and_kept_for_a_while(world, requested, later):
    placed = resident()
    assert "best" not in placed
    ask(named={"best": 2, "unheard-of": 1})
    assert requested == ["queries ask for digits/best"]
    assert resident() == placed | {"best"}
    later(wishes.KEPT_S - 1)
    ask(named={"best": 1})
    later(wishes.KEPT_S - 1)
    assert resident() == placed | {"best"}
    later(2)
    assert resident() == placed


def test_for_a_least_accuracy_the_quickest_that_has_it_is_loaded(world, requested):
    placed = resident()
    assert placed == {"better"}, "the most accurate one within the SLO"
    ask(least_accuracy=85.0)
    assert wishes.variants() == {world["good"].pk}, "the quickest, since nothing is loaded yet"
    Device.objects.update(warm=[world["better"].pk])
    ask(least_accuracy=91.0)
    assert wishes.variants() == {world["good"].pk, world["better"].pk}, "one that is loaded is kept"
    ask(least_accuracy=99.0)
    assert len(wishes.variants()) == 2, "nothing is so accurate"


def test_wishes_take_room_from_nobody(world, requested):
    Device.objects.update(memory_bytes=2**20 + 2**19)
    placed = resident()
    ask(named={"best": 1})
    assert resident() == placed


def test_few_wishes_are_kept_and_what_may_not_run_is_none(world, requested, later):
    for name in ("quick", "good", "best"):
        ask(named={name: 1})
        later(10)
    assert wishes.variants() == {world["good"].pk, world["best"].pk}, "the latest"
    Variant.objects.filter(name="best").update(excluded=True)
    later(wishes.KEPT_S)
    ask(named={"best": 1})
    assert wishes.variants() == set()


def test_fronts_wishes_add_up():
    one = {"digits": ApplicationStats(named={"best": 1}, least_accuracy=80.0)}
    other = {"digits": ApplicationStats(named={"best": 2, "good": 1}, least_accuracy=70.0)}
    (total,) = merged([one, other]).values()
    assert total.named == {"best": 3, "good": 1} and total.least_accuracy == 80.0
