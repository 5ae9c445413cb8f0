"""Trails of plans that were really made: a sentence, causes, the limit that binds, and moves with their cost."""

from __future__ import annotations

import re

import pytest

from registry.models import Device
from scheduler import retention
from scheduler.control.planner import make_plan
from scheduler.models import Plan
from scheduler.trail import Trail, application_trail, before, trail
from tests.control.world import KIND, application, arrive, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def trail_of(plan: Plan) -> Trail:
    return trail(plan, before(plan))


def test_the_first_plan_says_that_there_is_nothing_to_compare_with(digits):
    plan = make_plan("manual")
    trail = trail_of(plan)
    assert trail.previous is None and plan.changed
    assert "no earlier plan" in trail.sentence and trail.moves == [] and trail.causes == []


def test_a_rise_of_demand_is_the_cause_and_its_cost_is_named(digits):
    make_plan("manual")
    arrive("digits", 60)
    trail = trail_of(make_plan("burst", "digits"))
    assert "demand for digits rose" in trail.causes[0]
    assert trail.sentence.startswith("Demand for digits rose from")
    (cost,) = trail.cost
    assert cost.best == pytest.approx(100) and cost.now < cost.best
    assert "The devices have too little time" in trail.limit[0]
    (price,) = trail.prices
    assert (
        price.devices == 2
        and price.points > 0
        and price.sentence
        == (f"One more {KIND} would add up to {price.points:.{1 if price.points >= 1 else 2}f} points of accuracy.")
    )


def test_one_more_device_gains_no_more_than_its_price_says(digits):
    arrive("digits", 60)
    promised = trail_of(make_plan("manual")).prices[0].points
    before = Plan.objects.first().accuracy
    node("other", devices=1)
    plan = make_plan("change", "other/cpu0")
    trail = trail_of(plan)
    assert plan.accuracy - before <= promised + 0.01
    (move,) = [move for move in trail.moves if move.change == "new"]
    assert move.device == "other/cpu0" and move.loads and not move.unloads
    assert "device other/cpu0 joined" in trail.causes


def test_a_lost_device_and_left_out_demand_are_said_first(digits):
    arrive("digits", 600)
    make_plan("manual")
    Device.objects.filter(ref="box/cpu1").update(state=Device.State.DOWN)
    trail = trail_of(make_plan("change", "box/cpu1 is down"))
    assert trail.sentence.startswith("Device box/cpu1 left:")
    assert "left out:" in trail.sentence and "are left out: all devices are full" in trail.limit[0]
    assert trail.prices[0].items > 0 and "serve up to" in trail.prices[0].sentence
    (move,) = [move for move in trail.moves if move.device == "box/cpu1"]
    assert move.change == "gone" and move.unloads


def test_plans_that_move_nothing_are_marked_so(digits):
    assert [make_plan("period").changed for _ in range(3)] == [True, False, False]
    trail = trail_of(Plan.objects.first())
    assert trail.moves == [] and trail.limit == []
    assert "no device changed" in trail.sentence and "stays at 100.0%" in trail.sentence


def test_a_plan_is_explained_for_as_long_as_it_is_kept(digits, monkeypatch):
    monkeypatch.setattr(retention, "EVERY_S", -1e9)
    monkeypatch.setattr(retention, "KEEP_PROBLEMS", 1)
    make_plan("manual")
    arrive("digits", 60)
    plan = make_plan("burst", "digits")
    explained = trail_of(plan)
    for _ in range(2):
        make_plan("period")
    retention.enforce()
    plan = Plan.objects.get(pk=plan.pk)
    assert plan.problem == {} and trail_of(plan) == explained


def test_what_an_older_release_did_not_keep_is_not_explained(digits):
    first = make_plan("period")
    second = make_plan("burst", "digits")
    Plan.objects.filter(pk=first.pk).update(problem={}, inputs={})
    trail = trail_of(second)
    assert trail.previous is None and trail.causes == [] and trail.moves == []
    assert "no earlier plan is left" in trail.sentence
    forgotten = trail_of(Plan.objects.get(pk=first.pk))
    assert forgotten.sentence.startswith("The plan serves 1.0 of 1.0 items/s")
    assert "not kept any more" in forgotten.sentence and forgotten.demand == []


def test_a_better_variant_that_sets_the_best_is_not_reported_as_a_loss(digits):
    owner, *_ = digits
    make_plan("manual")
    variant(owner, "slow", 100, 10_000)
    trail = trail_of(make_plan("change", "variant digits/slow changed"))
    assert trail.sentence == (
        "Variant digits/slow became available: no device changed what it holds, and accuracy is 99.0% where it was "
        "100.0%, as digits/slow now sets the best."
    )
    assert "slow (100.00%) is not used: its fastest batch exceeds half" in trail.limit[0]


def test_without_moves_the_variant_that_answers_instead_is_named(digits):
    make_plan("manual")
    arrive("digits", 60)
    make_plan("burst", "digits")
    arrive("digits", 30)
    plan = make_plan("burst", "digits")
    trail = trail_of(plan)
    assert not plan.changed
    assert "no device changed what it holds, digits/" in trail.sentence and "% of digits instead of" in trail.sentence


def test_changes_of_many_applications_or_devices_are_one_cause(digits):
    for name in "abcd":
        variant(application(name), f"{name}-only", 90, 5)
    make_plan("manual")
    for name in "abcd":
        arrive(name, 20)
    Device.objects.filter(ref="box/cpu1").update(state=Device.State.DOWN)
    for number in range(4):
        node(f"far{number}", devices=2)
    trail = trail_of(make_plan("burst", "a"))
    assert trail.causes[0] == "device box/cpu1 left"
    assert trail.causes[1] == "8 devices of far0, far1, far2 and 1 more joined"
    assert trail.causes[2].startswith("demand for 4 applications rose from 4.0 to ")
    # Which rose most depends on where a second ends among these.
    assert re.search(r"together, most for [abcd] \(from 1\.0 to", trail.causes[2]) and len(trail.causes) == 3


def test_an_accuracy_that_reads_the_same_stays(digits):
    make_plan("manual")
    plan = make_plan("period")
    Plan.objects.filter(pk=plan.pk).update(accuracy=plan.accuracy - 0.04)
    plan.refresh_from_db()
    assert "accuracy stays at 100.0%" in trail_of(plan).sentence
    Plan.objects.filter(pk=plan.pk).update(accuracy=plan.accuracy - 0.06)
    plan.refresh_from_db()
    assert "accuracy falls from 100.0% to 99.9%" in trail_of(plan).sentence


def test_an_applications_trail_says_what_serves_it_and_why_not_more(digits):
    assert application_trail("digits") is None
    plan = make_plan("manual")
    found = application_trail("digits")
    assert (found.version, found.reasons) == (plan.pk, [])
    assert found.sentence == "Planned for all of 1.0 items/s, answered by good (100%) with 100.0% of the best accuracy."
    arrive("digits", 600)
    make_plan("burst", "digits")
    found = application_trail("digits")
    assert " of 6" in found.sentence and "quick (100%)" in found.sentence
    assert any("are left out: all devices are full" in reason for reason in found.reasons)
    application("bare")
    make_plan("manual")
    assert "no variant is profiled" in application_trail("bare").sentence
