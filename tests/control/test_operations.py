"""Tasks: work in the background as the drawer and REST list it, and ending it."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from registry import members, profiling
from registry.models import Application, Device, Node, ProfileJob, Variant
from scheduler import live, operations
from scheduler.control import leases
from scheduler.control.requests import request_plan
from tests.accounts import account, bearer
from tests.control.world import KIND, application, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def headers() -> dict[str, str]:
    return {"Authorization": bearer(account("ada"))}


@pytest.fixture
def quick(db) -> Variant:
    node()
    return variant(application(), "quick", 90, 5)


@pytest.fixture
def away(headers, quick, monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "REDIS_URL", f"unix://{tmp_path}/nobody.sock")
    live.client.cache_clear()
    yield
    live.client.cache_clear()


def test_a_profile_job_is_listed_by_who_asked_for_it_and_can_be_cancelled(client, headers, quick):
    answer = client.post("/api/v1/applications/digits/variants/quick/profile/", headers=headers)
    assert answer.status_code == 202
    (task,) = client.get("/api/v1/tasks/", headers=headers).json()["results"]
    assert (task["kind"], task["state"], task["by"], task["progress"]) == ("profiling", "waiting", "ada", None)
    assert task["title"] == f"digits/quick on {KIND}"
    assert client.delete(task["cancel"], headers=headers).status_code == 204
    (ended,) = client.get("/api/v1/tasks/", headers=headers).json()["results"]
    assert (ended["state"], ended["detail"], ended["cancel"]) == ("cancelled", "cancelled by ada", "")
    assert client.delete(task["cancel"], headers=headers).status_code == 409
    assert Variant.objects.get().state == Variant.State.READY


def test_a_waiting_profile_job_says_what_it_waits_for(quick):
    profiling.order(quick, ProfileJob.Reason.DRIFT)
    assert operations.current()[0].detail == "waits until a device of this type is free"
    Device.objects.update(state=Device.State.DOWN)
    assert operations.current()[0].detail == "waits for a device of this type: none is up"


def test_a_variant_whose_only_profiling_is_cancelled_has_failed(quick):
    fresh = Variant.objects.create(
        application=quick.application, name="new", digest="n" * 64, size_bytes=1, accuracy=95, state="profiling"
    )
    (job,) = profiling.order(fresh, ProfileJob.Reason.REGISTRATION)
    profiling.withdraw(job, "cancelled by ada")
    fresh.refresh_from_db()
    assert (fresh.state, fresh.detail) == ("failed", "its profiling was cancelled by ada")
    # Ordered anew, it gets its chance again.
    profiling.order(fresh, ProfileJob.Reason.DEMAND)
    fresh.refresh_from_db()
    assert fresh.state == "profiling"


def test_who_asked_for_many_jobs_takes_as_many_queries_as_for_one(quick):
    profiling.order(quick, ProfileJob.Reason.DEMAND)
    with CaptureQueriesContext(connection) as one:
        assert len(operations.current()) == 1
    for number in range(5):
        other = variant(quick.application, f"other{number}", 90, 5)
        profiling.order(other, ProfileJob.Reason.DEMAND)
    with CaptureQueriesContext(connection) as many:
        assert len(operations.current()) == 6
    assert len(many) <= len(one)


def test_without_redis_tasks_are_listed_and_what_needs_it_says_so(client, headers, quick, away):
    profiling.order(quick, ProfileJob.Reason.DRIFT)
    assert len(client.get("/api/v1/tasks/", headers=headers).json()["results"]) == 1
    answer = client.get("/api/v1/history/?seconds=60", headers=headers)
    assert answer.status_code == 503 and "Redis cannot be used now" in answer.json()["detail"]


def test_viewers_see_tasks_and_end_none(client, quick):
    (job,) = profiling.order(quick, ProfileJob.Reason.DRIFT)
    looker = {"Authorization": bearer(account("looker", "viewer"), "viewer")}
    (task,) = client.get("/api/v1/tasks/", headers=looker).json()["results"]
    # A button that is refused would be a trap.
    assert (task["by"], task["cancel"], task["consequence"]) == ("Nereus", "", "")
    assert client.delete(f"/api/v1/profile-jobs/{job.pk}/", headers=looker).status_code == 403


def test_a_node_drains_until_its_devices_hold_nothing(quick):
    Device.objects.update(warm=[quick.pk])
    members.cordon(Node.objects.get(), force=True)
    (task,) = operations.current()
    assert (task.kind, task.title, task.cancel) == ("drain", "Node box", "/api/v1/nodes/box/cordon/")
    Device.objects.update(warm=[])
    assert operations.current() == []


def test_drains_of_variants_and_applications_are_listed(quick):
    Variant.objects.update(state=Variant.State.DRAINING)
    Application.objects.update(state="draining")
    assert {task.title for task in operations.current()} == {"Application digits", "Variant digits/quick"}


def test_a_plan_is_listed_while_it_is_solved(client):
    request_plan("manual", "by ada")
    assert operations.current() == []
    with leases.held(leases.PLAN):
        (task,) = operations.current()
        assert (task.kind, task.by, task.state) == ("solving", "ada", "running")
    assert operations.current() == []


def test_jobs_that_ended_long_ago_are_left_out(quick):
    (job,) = profiling.order(quick, ProfileJob.Reason.DRIFT)
    ended = timezone.now() - operations.ENDED_FOR * 2
    ProfileJob.objects.filter(pk=job.pk).update(state="done", finished=ended)
    assert operations.current() == []
