"""Requests for a plan that waited for the planning worker.

One plan serves them all, and none waits forever.
"""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from unittest.mock import Mock

import pytest

from scheduler import tasks
from scheduler.control import requests
from scheduler.models import MOST_DETAIL, Plan
from scheduler.queue import EXPIRES_S
from tests.control.world import application, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def world():
    node()
    variant(application(), "quick", 90, 5)


def waiting(redis) -> list[dict]:
    """Return the requests in the planning queue, the oldest first.

    They are as the queue's worker would get them.
    """
    return [json.loads(message) for message in reversed(redis.lrange("nereus:celery:planning", 0, -1))]


def arguments(message: dict) -> dict:
    return ast.literal_eval(message["headers"]["kwargsrepr"])


def test_requests_that_pile_up_are_served_by_one_plan(world, clean_redis):
    for number in range(4):
        assert requests.request_plan("change", f"number {number}")
        # As after WAITING_EXPIRES_S without a worker.
        clean_redis.delete(requests.WAITING)
    found = waiting(clean_redis)
    assert len(found) == 4
    assert all(message["headers"]["expires"] is not None for message in found) and EXPIRES_S <= 60
    for message in found:
        tasks.plan(**arguments(message))
    assert [plan.trigger_detail for plan in Plan.objects.all()] == ["number 0; number 1; number 2; number 3"]
    # One that comes after the plan started needs another.
    assert requests.request_plan("change", "later")
    tasks.plan(**arguments(waiting(clean_redis)[-1]))
    assert Plan.objects.first().trigger_detail == "later"


def test_a_request_that_came_while_a_plan_was_made_is_served(world, clean_redis, monkeypatch):
    from scheduler.control import planner

    make = planner.make_plan

    def make_and_change(*given):
        made = make(*given)
        assert requests.request_plan("change", "meanwhile")
        return made

    monkeypatch.setattr(planner, "make_plan", make_and_change)
    tasks.plan("period")
    monkeypatch.undo()
    tasks.plan(**arguments(waiting(clean_redis)[-1]))
    assert Plan.objects.first().trigger_detail == "meanwhile"


def test_a_plan_has_the_causes_of_all_requests_that_it_serves(world, clean_redis):
    assert requests.request_plan("overload", "box/cpu refused 3 of 9 items of digits")
    assert not requests.request_plan("change", "device box/cpu is down")
    assert not requests.request_plan("change", "device box/cpu is down")
    (message,) = waiting(clean_redis)
    # The regular plan comes before it in the queue.
    tasks.plan("period")
    plan = Plan.objects.get()
    assert plan.trigger == "change"
    assert plan.trigger_detail == "device box/cpu is down; box/cpu refused 3 of 9 items of digits"
    tasks.plan(**arguments(message))
    assert Plan.objects.count() == 1
    tasks.plan("period")
    latest = Plan.objects.first()
    assert (latest.pk, latest.trigger, latest.trigger_detail) == (plan.pk + 1, "period", "")


def test_any_number_of_bursts_hides_no_change_and_nobodys_request(world, clean_redis):
    requests.request_plan("change", "device box/cpu is down")
    requests.request_plan("manual", "by admin")
    requests.request_plan("overload", "x" * MOST_DETAIL)
    for number in range(50):
        requests.burst("digits", 5.0 + number, 1)
    assert sum(clean_redis.llen(key) for key in clean_redis.keys(requests.CAUSES + "*")) == 3 + requests.MOST_CAUSES
    tasks.plan("period")
    plan = Plan.objects.get()
    assert plan.trigger == "manual" and plan.trigger_detail.startswith("by admin; device box/cpu is down; digits at ")
    assert len(plan.trigger_detail) == MOST_DETAIL
    assert not clean_redis.keys(requests.CAUSES + "*")


def test_causes_outlive_a_plan_that_fails_or_loses_its_lease(world, clean_redis, monkeypatch):
    from scheduler.control import leases, planner

    requests.request_plan("overload", "refused")
    requests.request_plan("change", "device box/cpu is down")
    for error in (RuntimeError("a bad moment"), leases.LeaseLost("another plans")):
        monkeypatch.setattr(planner, "make_plan", Mock(side_effect=error))
        with suppress(RuntimeError):
            tasks.plan("period")
    monkeypatch.undo()
    tasks.plan("period")
    assert Plan.objects.get().trigger_detail == "device box/cpu is down; refused"


def test_a_plan_that_failed_serves_nobody(world, clean_redis, monkeypatch):
    from scheduler.control import planner

    assert requests.request_plan("change", "waits")
    (message,) = waiting(clean_redis)
    choose = planner.choices.current
    monkeypatch.setattr(planner.choices, "current", lambda: (_ for _ in ()).throw(RuntimeError("a bad moment")))
    with pytest.raises(RuntimeError):
        tasks.plan("period")
    monkeypatch.setattr(planner.choices, "current", choose)
    tasks.plan(**arguments(message))
    assert Plan.objects.first().trigger_detail == "waits"


def test_planning_goes_on_when_redis_was_emptied_while_a_plan_was_made(world, clean_redis, monkeypatch):
    from scheduler.control import planner

    for _ in range(3):
        tasks.plan("period")
    make = planner.make_plan

    def make_meanwhile_emptied(*given):
        clean_redis.flushall()
        return make(*given)

    monkeypatch.setattr(planner, "make_plan", make_meanwhile_emptied)
    tasks.plan("period")
    monkeypatch.undo()
    assert requests.request_plan("change", "after that")
    tasks.plan(**arguments(waiting(clean_redis)[-1]))
    assert Plan.objects.first().trigger_detail == "after that"


def test_requests_of_an_earlier_release_are_served(world, clean_redis):
    tasks.plan("change", "without a ticket")
    assert Plan.objects.first().trigger_detail == "without a ticket"
