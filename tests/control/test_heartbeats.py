"""Heartbeats of workers that make plans."""

from __future__ import annotations

from contextvars import copy_context

import pytest
from celery import shared_task
from django.conf import settings

import appliance.heartbeats  # noqa: F401
from scheduler import progress


@shared_task(name="tests.planning")
def planning(reports: bool) -> None:
    if reports:
        progress.report()


@pytest.fixture
def beats():
    def file(service: str):
        path = settings.NEREUS.heartbeat(service)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        return path

    return file


@pytest.mark.parametrize("queue", ["planning", "simulation"])
def test_a_plan_that_goes_on_is_a_heartbeat_of_its_queue(beats, queue):
    file = beats(queue)
    copy_context().run(planning.apply, [False], routing_key=queue)
    assert not file.exists()
    copy_context().run(planning.apply, [True], routing_key=queue)
    assert file.exists()


def test_tasks_of_other_queues_show_no_planning(beats):
    files = [beats(service) for service in ("planning", "simulation", "control", "celery")]
    copy_context().run(planning.apply, [True], routing_key="control")
    assert not any(file.exists() for file in files)
