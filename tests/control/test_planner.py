"""The control loop on real rows and a real Redis: what is planned, when, and what members receive."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.utils import timezone

from registry.models import Application, Device, Node, ProfileJob, Variant
from scheduler import presence, tasks, telemetry
from scheduler.allocation.verification import UnusableProblem
from scheduler.control import choices, leases, requests, upkeep
from scheduler.control.planner import make_plan
from scheduler.members import contents
from scheduler.models import Plan
from scheduler.plans import left_out
from tests.control.world import KIND, application, arrive, node, requested, seen, variant
from workers.protocol import specs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def planned(plan: Plan) -> set[str]:
    return {resident["variant"]["name"] for device in plan.wire["devices"] for resident in device["residents"]}


def test_without_demand_the_most_accurate_variant_is_kept_warm(digits):
    plan = make_plan("manual")
    assert "good" in planned(plan)
    assert plan.accuracy == pytest.approx(100)


def test_a_plan_that_is_the_strategys_own_says_nothing_of_a_refusal(digits):
    assert make_plan("manual").refused == ""
    # Plans of earlier versions do not have the field.
    assert Plan(allocation={"placements": []}).refused == ""


def test_people_read_since_when_and_why_no_plan_can_be_made(digits):
    _, quick, _ = digits
    tasks.plan("manual")
    assert requests.plan_row().error == ""
    quick.profiles.get().latencies.filter(batch=1).update(p95_ms=float("inf"))
    for _ in range(2):
        with pytest.raises(UnusableProblem):
            tasks.plan("manual")
    found = requests.plan_row()
    assert "profiles[cpu-test-1c].points[1]" in found.error
    assert timedelta() <= timezone.now() - found.failing_since < timedelta(minutes=10)
    quick.profiles.get().latencies.filter(batch=1).update(p95_ms=5)
    tasks.plan("manual")
    assert requests.plan_row().error == ""


def test_demand_beyond_the_best_variant_costs_accuracy_not_queries(digits):
    arrive("digits", 120)
    plan = make_plan("period")
    assert "quick" in planned(plan)
    assert plan.served == pytest.approx(plan.demand)
    # 120 items/s and the margin of a steady application.
    assert 120 < plan.demand < 120 * 1.2
    assert plan.accuracy < 100


def test_demand_beyond_all_variants_is_left_out_and_said_so(digits):
    arrive("digits", 5000)
    plan = make_plan("burst")
    assert 0 < plan.served < plan.demand
    assert left_out(plan)["digits"] == pytest.approx(plan.demand - plan.served)
    assert any("digits" in reason and "left out" in reason.lower() for reason in plan.reasons), plan.reasons


def test_a_rate_reported_with_a_burst_counts_for_the_next_plans_too(digits):
    requests.burst("digits", 150.0, 1)
    with leases.held(leases.PLAN):
        assert make_plan("burst", "", requests.demand().rates).demand == pytest.approx(150)
    # An overload report right behind it must not make a plan from statistics that do not know the burst yet.
    requests.note("overload")
    with leases.held(leases.PLAN):
        assert make_plan("overload", "", requests.demand().rates).demand == pytest.approx(150)


def test_one_request_waits_and_the_others_are_notified(digits):
    assert requests.request_plan("change", "first")
    assert not requests.request_plan("change", "second")
    requested()
    assert requests.request_plan("change", "third")


def test_nothing_is_planned_without_devices_and_the_plan_in_force_stays(digits):
    before = make_plan("manual")
    Node.objects.update(**seen(ago=300))
    assert make_plan("period") is None
    assert Plan.objects.first() == before


def test_a_control_plane_that_was_away_plans_with_nodes_that_are_still_coming_back(digits, clean_redis):
    node("other", devices=1)
    Node.objects.filter(name="other").update(**seen(ago=300))
    assert len(make_plan("period").wire["devices"]) == 2
    clean_redis.delete(presence.SEEN)  # no member reported: web was down
    presence.seen()  # the first node is back
    assert len(make_plan("period").wire["devices"]) == 3
    assert upkeep.write_off_silent_devices() == 0
    clean_redis.delete(presence.RETURNING)  # the others had their time
    assert len(make_plan("period").wire["devices"]) == 2


def test_two_reports_in_one_second_are_not_taken_for_twice_the_demand():
    """The gateway's ticks come near the turn of a second: 100 items each, in seconds 0, 2, 2, 3, 5, 5 ..."""
    entries = [
        {"t": t, "gateway": "g", "applications": {"a": {"arrived_rows": 100}}} for t in (0, 2, 2, 3, 5, 5, 6, 8, 8)
    ]
    assert max(counts["a"] for _, counts in telemetry.sum_arrivals(entries)) == 100
    other = [{**entry, "gateway": "h"} for entry in entries]
    assert max(counts["a"] for _, counts in telemetry.sum_arrivals([*entries, *other])) == 200


def test_the_fastest_variant_stands_by_where_it_is_not_placed(digits):
    for device in make_plan("manual").wire["devices"]:
        assert [r["variant"]["name"] for r in device["residents"]] == ["good"]
        assert [r["variant"]["name"] for r in device["relief"]] == ["quick"]


def test_published_stacks_hold_nothing_that_their_strategies_do_not_ask_for(digits):
    choices.change("proteus", "a test")  # one variant a device
    for device in make_plan("manual").wire["devices"]:
        assert [r["variant"]["name"] for r in device["residents"]] == ["good"]
        assert not device["relief"]


def test_a_device_that_is_down_is_planned_without(digits):
    Device.objects.filter(ref="box/cpu1").update(state=Device.State.DOWN)
    plan = make_plan("change")
    assert [device["device"] for device in plan.wire["devices"]] == ["box/cpu0"]


def test_devices_that_come_or_go_ask_for_a_plan_by_themselves(digits):
    make_plan("manual")
    assert not upkeep.replan_if_devices_changed()
    Device.objects.filter(ref="box/cpu1").update(state=Device.State.DOWN)
    assert upkeep.replan_if_devices_changed()


def test_devices_of_a_node_that_fell_silent_hold_nothing_any_more(digits):
    Device.objects.update(warm=[1])
    Node.objects.update(**seen(ago=300))
    assert upkeep.write_off_silent_devices() == 2
    assert set(Device.objects.values_list("state", flat=True)) == {"down"}


def test_only_ready_variants_take_part(digits):
    Variant.objects.filter(name="good").update(state=Variant.State.DRAINING)
    assert planned(make_plan("change")) == {"quick"}


def test_when_the_last_variant_leaves_an_empty_plan_frees_the_devices(digits):
    assert planned(make_plan("manual"))
    Variant.objects.update(state=Variant.State.DRAINING)
    plan = make_plan("change")
    assert planned(plan) == set() and len(plan.wire["devices"]) == 2
    assert make_plan("period") is None  # nothing resides any more


def test_time_for_profiling_is_set_aside_while_jobs_are_open(digits):
    _, quick, _ = digits
    ProfileJob.objects.create(variant=quick, device_type=KIND)
    plan = make_plan("manual")
    assert {device["available"] for device in plan.problem["devices"]} == {0.95}


def test_more_applications_than_devices_all_get_a_place(digits):
    for name in ("second", "third"):
        variant(application(name), "only", 95, 5)
    plan = make_plan("change")
    assert {route["application"] for route in plan.wire["routes"]} == {"digits", "second", "third"}
    assert any(device["revisit_s"] > 0 for device in plan.wire["devices"])


def test_what_is_stored_is_what_gateways_get(digits):
    plan = make_plan("manual")
    config = contents.gateway_config(contents.read().shared)
    assert config.plan == msgspec.convert(plan.wire, specs.PlanSpec)
    assert config.plan.version == plan.pk
    assert sum(route.share for route in config.plan.routes) == pytest.approx(1)
    assert config.plan.stack == "nereus"
    Application.objects.update(weight=2.5)
    assert [spec.weight for spec in contents.gateway_config(contents.read().shared).applications] == [2.5]
    assert config.plan.bands["digits"].low < plan.demand < config.plan.bands["digits"].high


def test_a_node_gets_its_own_devices_and_what_may_stay_in_standby(digits):
    other = node("other", devices=1)
    make_plan("manual")
    config = contents.node_config(other.pk, contents.read().shared)
    assert [device.device for device in config.plan.devices] == ["other/cpu0"]
    ready = tuple(Variant.objects.order_by("id").values_list("pk", flat=True))
    assert config.plan.devices[0].may_stay == ready
    Variant.objects.filter(name="good").update(state=Variant.State.DRAINING)
    assert contents.node_config(other.pk, contents.read().shared).plan.devices[0].may_stay == ready[:1]
