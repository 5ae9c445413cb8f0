"""Plans for devices that come one after the other.

Requests are read where they are made: from the broker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import msgspec
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings

from scheduler.control import requests
from scheduler.members.debounce import PlanDebounce
from scheduler.models import Plan
from tests.control.linked import until
from tests.control.world import node
from workers.protocol import specs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def requested(clean_redis) -> Callable[[], list[str]]:
    """Return the details of the plans requested so far.

    None of them is taken for waiting.
    """

    def details() -> list[str]:
        requests.started()
        queue = f"{settings.NEREUS.redis_prefix}:celery:planning"
        tasks = [json.loads(task) for task in clean_redis.lrange(queue, 0, -1)]
        return [task["headers"]["kwargsrepr"] for task in reversed(tasks)]

    return details


async def planned(*devices: str) -> None:
    """A plan with these devices is in force."""
    problem = {"devices": [{"id": device} for device in devices]}
    wire = msgspec.to_builtins(specs.PlanSpec(version=1))
    await sync_to_async(Plan.objects.create)(
        trigger="manual", stack="nereus", problem=problem, allocation={}, wire=wire, status="optimal"
    )


async def test_the_first_plan_of_an_appliance_waits_for_no_other_device(requested):
    plans = PlanDebounce(quiet_s=3600.0, longest_s=3600.0)
    plans.came(["box/cpu0"])
    (only,) = await until(requested, "the first plan")
    assert "box/cpu0" in only
    plans.came(["box/cpu1"])
    await asyncio.sleep(0.3)
    assert len(requested()) == 1, "later ones wait, also while that plan is made"


async def test_devices_that_come_together_get_one_plan_which_names_some(requested):
    await planned()
    plans = PlanDebounce(quiet_s=0.1)
    for number in range(5):
        plans.came([f"box/cpu{number}"])
    assert requested() == []
    (only,) = await until(requested, "the plan")
    assert "box/cpu0, box/cpu1, box/cpu2 and 2 more" in only


async def test_devices_that_go_on_coming_do_not_put_the_plan_off_for_ever(requested):
    await planned()
    plans = PlanDebounce(quiet_s=3600.0, longest_s=0.5)

    async def arrive() -> None:
        for number in range(10_000):
            plans.came([f"box/cpu{number}"])
            await asyncio.sleep(0.05)

    coming = asyncio.create_task(arrive())
    await until(requested, "the plan")
    coming.cancel()


async def test_a_member_that_comes_back_gets_a_plan_only_where_the_last_one_left_out_its_devices(
    requested, clean_redis
):
    await sync_to_async(node)(devices=2)
    await planned("box/cpu0", "box/cpu1")
    plans = PlanDebounce(quiet_s=0.05)
    plans.came()
    await until(lambda: plans._waiting.done(), "the comparison")
    assert requested() == []
    await planned("box/cpu0")
    plans.came()
    (only,) = await until(requested, "the plan")
    assert "box/cpu1 joined" in only
