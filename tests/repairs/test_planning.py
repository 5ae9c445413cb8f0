"""Plans that are not made, and demand that they cannot serve. All is real, except for time."""

from __future__ import annotations

import pytest
from django.utils import timezone

from registry import clock
from registry.models import Node
from scheduler import live, tasks, telemetry
from scheduler.control import planner, requests
from scheduler.history import recording
from scheduler.models import KnownRepair, WorkLease
from scheduler.repairs import facts, known, listing
from scheduler.repairs.checks import planning
from scheduler.repairs.in_time import in_time
from tests.control.world import application, second, variant
from tests.repairs.looks import found, plan
from workers.protocol.specs import ApplicationStats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


def arrive(arrived: int, refused: int, seconds: int = 60) -> None:
    for ago in range(seconds, 0, -1):
        second({"digits": ApplicationStats(arrived=arrived, dropped=refused)}, ago)


def test_demand_above_capacity_in_numbers_once_it_is_no_burst(world, lasting, monkeypatch):
    plan(allocation={"left_out": {"digits": 20.0}})
    assert found() == {}, "a burst"
    repair = lasting(61)["demand:digits"]
    assert repair.effect == "The plan leaves out 20.0 of 120 items/s even at the lowest accuracy."
    arrive(100, 14)
    assert "queries/s (14%) were refused in the last minute. The plan leaves" in found()["demand:digits"].effect
    plan()
    assert "demand:digits" in found(), "queries are still refused"
    telemetry.live.client().delete(telemetry.GATEWAY_STREAM)
    assert found() == {}


def answer(late: int, seconds: int, arrived: int = 100) -> None:
    for ago in range(seconds, 0, -1):
        second({"digits": ApplicationStats(arrived=arrived, in_time=arrived - late, late=late)}, ago)


def test_late_answers_are_raised_once_and_are_over_only_when_few_are_late(world, lasting):
    plan()
    answer(17, 60)
    listing.watch()
    assert not KnownRepair.objects.filter(raised=True).exists(), "neither shown nor announced yet"
    lasting(61)
    answer(17, 60)
    listing.watch()
    assert found()["demand:digits"].title == "digits: too many answers are late"
    live.client().delete(telemetry.GATEWAY_STREAM)
    answer(3, 60)
    assert "demand:digits" in found(), "fewer, and still more than the goal allows"
    live.client().delete(telemetry.GATEWAY_STREAM)
    answer(0, 60)
    listing.watch()
    assert "demand:digits" not in found() and not KnownRepair.objects.filter(key="demand:digits").exists()


def test_a_short_burst_raises_nothing_and_is_not_denied(world):
    plan()
    assert not listing.current().in_time.late
    answer(0, 55)
    answer(30, 4)
    recording.record()
    listing.watch()
    look = listing.current()
    assert look == [] and look.in_time.late and "digits answered" in look.in_time.sentence
    assert not KnownRepair.objects.filter(raised=True).exists()


def test_a_share_just_below_the_goal_is_not_shown_as_the_goal(world):
    late = facts.RecentQueries(arrived=1000, late=13)
    read = facts.Facts()
    read.recent = read.long = {"digits": late}
    sentence = in_time(read).sentence
    assert "answered 98.7% in time in the last" in sentence and "the goal is 99%" in sentence


def test_few_refused_queries_need_nobody(world, lasting):
    plan()
    arrive(100, 4)
    assert lasting(30) == {} and lasting(31) == {}


def test_planning_that_fails_says_since_when_and_why(world, lasting, monkeypatch):
    def broken(*_):
        raise ValueError("a constraint is broken")

    monkeypatch.setattr(planner, "make_plan", broken)
    before = timezone.now()
    for _ in range(2):
        with pytest.raises(ValueError, match="constraint"):
            tasks.plan("period")
    since = requests.plan_row().failing_since
    assert before <= since <= timezone.now()
    found()
    monkeypatch.setattr(known, "_here", type("Long", (), {"ages": lambda self, values: dict.fromkeys(values, 1e6)})())
    repair = found()["planning:failing"]
    assert repair.since == since and "ValueError: a constraint is broken" in repair.effect
    assert repair.action.url == "/api/v1/plan/"
    monkeypatch.setattr(planner, "make_plan", lambda *_: None)
    tasks.plan("period")
    assert found() == {}


def test_no_attempt_to_plan_for_too_long(world, later):
    made = plan()
    later(planning.silent_s() + 1)
    Node.objects.update(seen_s=clock.steady())
    repair = found()["planning:silent"]
    assert repair.since == made.created and f"plan {made.pk}" in repair.effect


def test_attempts_to_plan_that_nothing_is_known_of_count_after_a_while(world, later):
    WorkLease.objects.all().delete()
    assert found() == {}
    later(planning.silent_s() + 1)
    Node.objects.update(seen_s=clock.steady())
    assert "planning:silent" in found()


def test_an_allocation_that_was_refused(world, lasting):
    plan(allocation={"refused": "box/cpu0: 120% of its time"})
    assert "120% of its time" in lasting(61)["planning:refused"].effect


def test_an_application_without_a_variant_or_with_slow_ones_alone(world):
    application("empty")
    sluggish = application("sluggish", slo_ms=2)
    variant(sluggish, "one", 90, 5)
    assert found()["application:empty"].severity == "warning"
    repair = found()["slo:sluggish"]
    assert "0 of 1 variant can answer within half of 2 ms" in repair.effect and "one, takes 5 ms" in repair.effect
    type(sluggish).objects.filter(pk=sluggish.pk).update(slo_ms=200)
    assert "slo:sluggish" not in found()
