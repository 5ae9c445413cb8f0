"""Every baseline plans for the live appliance, chosen by the setting that operators have."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from registry.models import Variant
from scheduler.api.serializers import PlanDetailSerializer
from scheduler.control.planner import make_plan
from scheduler.models import Plan
from scheduler.promises import present
from tests.control.world import application, arrive, listening, node, variant
from workers.dispatch import stacks
from workers.protocol import specs

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def cluster(clean_redis):
    """Four devices and two applications, whose variants serve 200 and 25 rows/s a device."""
    listening(clean_redis)
    node(devices=4)
    for name in ("digits", "letters"):
        owner = application(name)
        variant(owner, f"{name}-quick", 90, 5)
        variant(owner, f"{name}-good", 99, 40)


@pytest.fixture
def stack(settings):
    def choose(name: str) -> None:
        settings.NEREUS = replace(settings.NEREUS, stack=name)

    return choose


def hosts(plan: Plan) -> dict[str, list[str]]:
    return {d["device"]: [r["variant"]["name"] for r in d["residents"]] for d in plan.wire["devices"]}


@pytest.mark.parametrize("name", stacks.LIVE)
def test_it_plans_what_gateways_can_follow(name, cluster, stack):
    stack(name)
    plan = make_plan("manual")
    assert plan.stack == name and plan.served == pytest.approx(plan.demand)
    for served in ("digits", "letters"):
        shares = [route["share"] for route in plan.wire["routes"] if route["application"] == served]
        assert sum(shares) == pytest.approx(1)
    assert plan.problem["previous"] is None  # the plan before has a row of its own


def test_a_static_plan_outlives_the_demand_it_was_made_for(cluster, stack):
    stack("clipper-ha")
    first = make_plan("manual")
    arrive(("digits", "letters"), 150)
    second = make_plan("period")
    assert hosts(second) == hosts(first)
    assert second.demand > first.demand
    assert second.served < second.demand


def test_what_another_strategy_decided_is_not_remembered(cluster, stack):
    stack("infaas-greedy")
    make_plan("manual")
    stack("clipper-ha")
    plan = make_plan("manual")
    assert {name for names in hosts(plan).values() for name in names} == {"digits-good", "letters-good"}


def test_a_stored_plan_that_cannot_be_read_counts_as_none(cluster, stack):
    stack("clipper-ha")
    first = make_plan("manual")
    Plan.objects.filter(pk=first.pk).update(allocation={**first.allocation, "served": "all"})
    assert hosts(make_plan("period")).keys() == hosts(first).keys()


def test_policies_travel_with_the_plan(cluster, stack):
    stack("ramsis")
    make_plan("manual")
    arrive(("digits", "letters"), 150)
    plan = make_plan("period")
    wire = msgspec.convert(plan.wire, specs.PlanSpec)
    names = {v.pk: v.name for v in Variant.objects.all()}
    assert {planned.application for planned in wire.policies} == {"digits", "letters"}
    for planned in wire.policies:
        assert [names[id] for id in planned.variants] == [f"{planned.application}-quick", f"{planned.application}-good"]
        assert planned.devices and planned.policies[-1].load >= 150
        here = [device for device in wire.devices if device.device in planned.devices]
        assert all({r.variant.id for r in (*d.residents, *d.standby_residents)} == set(planned.variants) for d in here)
    assert len(msgspec.json.encode(wire.policies)) < 100_000
    # The next plan builds on this one, read from its row.
    assert hosts(make_plan("period")) == hosts(plan)


def test_policies_are_stored_once_and_read_as_part_of_the_allocation(cluster, stack):
    stack("ramsis")
    make_plan("manual")
    plan = Plan.objects.get()
    assert plan.allocation["policies"] == []
    _, _, allocation = present.in_force()
    assert [(one.application, list(map(int, one.variants)), list(one.devices)) for one in allocation.policies] == [
        (one["application"], one["variants"], one["devices"]) for one in plan.wire["policies"]
    ]
    shown = PlanDetailSerializer(plan).data["allocation"]["policies"]
    assert shown == [{**one, "variants": list(map(str, one["variants"]))} for one in plan.wire["policies"]]
    assert shown and all(one["policies"][0]["steps"] for one in shown)
