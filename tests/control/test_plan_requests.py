"""Requests for a plan: one plan serves all that wait, and none is lost."""

from __future__ import annotations

import json
from contextlib import suppress
from unittest.mock import Mock

import pytest
from django.db import transaction

from scheduler import tasks
from scheduler.control import leases, planner, requests
from scheduler.models import MOST_DETAIL, Plan
from tests.control.world import application, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world():
    node()
    variant(application(), "quick", 90, 5)


def queued(redis) -> list[dict]:
    return [json.loads(message) for message in redis.lrange("nereus:celery:planning", 0, -1)]


def test_requests_that_wait_are_served_by_one_plan_and_one_task(world, clean_redis):
    asked = [requests.request_plan("change", f"number {number}") for number in range(4)]
    assert asked == [True, False, False, False]
    (task,) = queued(clean_redis)
    assert task["headers"]["expires"] is not None
    tasks.plan()
    tasks.plan()
    assert [plan.trigger_detail for plan in Plan.objects.all()] == ["number 0; number 1; number 2; number 3"]
    assert requests.request_plan("change", "later") and len(queued(clean_redis)) == 2
    tasks.plan()
    assert Plan.objects.first().trigger_detail == "later"


def test_a_request_is_part_of_its_transaction(world, clean_redis):
    with suppress(RuntimeError), transaction.atomic():
        requests.request_plan("change", "taken back")
        raise RuntimeError
    assert not requests.plan_row().waits and not queued(clean_redis)


def test_a_request_that_came_while_a_plan_was_made_is_served(world, clean_redis, monkeypatch):
    make = planner.make_plan

    def make_and_change(*given):
        made = make(*given)
        assert requests.request_plan("change", "meanwhile")
        return made

    monkeypatch.setattr(planner, "make_plan", make_and_change)
    tasks.plan("period")
    monkeypatch.undo()
    assert len(queued(clean_redis)) == 1
    tasks.plan()
    assert Plan.objects.first().trigger_detail == "meanwhile"


def test_a_plan_has_the_causes_of_all_requests_that_it_serves(world):
    requests.request_plan("overload", "box/cpu refused 3 of 9 items of digits")
    requests.request_plan("change", "device box/cpu is down")
    requests.request_plan("change", "device box/cpu is down")
    # The regular plan comes before the task.
    tasks.plan("period")
    plan = Plan.objects.get()
    assert plan.trigger == "change"
    assert plan.trigger_detail == "device box/cpu is down; box/cpu refused 3 of 9 items of digits"
    tasks.plan()
    assert Plan.objects.count() == 1
    tasks.plan("period")
    latest = Plan.objects.first()
    assert (latest.pk, latest.trigger, latest.trigger_detail) == (plan.pk + 1, "period", "")


def test_any_number_of_bursts_hides_no_change_and_nobodys_request(world):
    requests.request_plan("change", "device box/cpu is down")
    requests.request_plan("manual", "by admin")
    requests.request_plan("overload", "x" * MOST_DETAIL)
    for number in range(50):
        requests.burst("digits", 5.0 + number, 1)
    assert len(requests.plan_row().causes) == 3 + requests.MOST_CAUSES
    tasks.plan("period")
    plan = Plan.objects.get()
    assert plan.trigger == "manual" and plan.trigger_detail.startswith("by admin; device box/cpu is down; digits at ")
    assert len(plan.trigger_detail) == MOST_DETAIL
    assert requests.plan_row().causes == []


def test_requests_outlive_plans_that_fail_or_lose_their_lease(world, monkeypatch):
    requests.request_plan("overload", "refused")
    requests.request_plan("change", "device box/cpu is down")
    for error in (RuntimeError("a bad moment"), leases.LeaseLost("another plans")):
        monkeypatch.setattr(planner, "make_plan", Mock(side_effect=error))
        with suppress(RuntimeError):
            tasks.plan("period")
    monkeypatch.undo()
    tasks.plan()
    assert Plan.objects.get().trigger_detail == "device box/cpu is down; refused"


def test_a_task_that_nobody_took_up_is_sent_again(world, clean_redis, later):
    watch = leases.LeaseWatch(leases.PLAN)
    assert not requests.look(watch)
    later(3600)
    requests.request_plan("change", "device box/cpu is down")
    clean_redis.flushall()
    assert not requests.look(watch)
    later(leases.TTL_S - 1)
    # Later requests do not put it off.
    requests.request_plan("change", "another")
    assert not requests.look(watch)
    later(1)
    assert requests.look(watch) and len(queued(clean_redis)) == 1 and not requests.look(watch)
    tasks.plan()
    later(3600)
    assert not requests.look(watch)
    assert Plan.objects.get().trigger_detail == "device box/cpu is down; another"
