"""Rows that grow in number with time alone are bounded, and nothing that is needed is deleted."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from registry import profiling
from registry.models import Member, Node, ProfileJob
from scheduler import retention, tasks
from scheduler.control import upkeep, versions
from scheduler.control.planner import make_plan
from scheduler.models import Plan
from tests.control.world import KIND, application, listening, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture(autouse=True)
def _due(monkeypatch):
    monkeypatch.setattr(retention, "EVERY_S", -1e9)


@pytest.fixture
def digits(clean_redis):
    listening(clean_redis)
    node()
    owner = application()
    return variant(owner, "quick", 90, 5)


def plans() -> list[int]:
    return sorted(Plan.objects.values_list("pk", flat=True))


def test_old_plans_go_beyond_the_limit_and_lose_their_problems_before(digits, settings, monkeypatch):
    settings.NEREUS = dataclasses.replace(settings.NEREUS, keep_plans=3)
    monkeypatch.setattr(retention, "KEEP_PROBLEMS", 1)
    made = [make_plan("manual").pk for _ in range(5)]
    retention.enforce()
    assert plans() == made[-3:]
    assert [bool(plan.problem) for plan in Plan.objects.order_by("pk")] == [False, False, True]
    assert Plan.objects.last().wire["devices"], "what a plan decided stays"
    assert not upkeep.replan_if_devices_changed()


def test_a_lost_database_gives_no_version_again(digits):
    first = make_plan("manual").pk
    second = make_plan("manual").pk
    assert second == first + 1 == versions.highest()
    Plan.objects.all().delete()
    assert make_plan("manual").pk == second + 1
    # As after a restored copy of an older home folder.
    versions._path().unlink()
    assert make_plan("manual").pk == second + 2


def test_ended_jobs_go_but_what_was_tried_is_not_tried_again(digits, monkeypatch):
    monkeypatch.setattr(retention, "KEEP_JOBS", 2)
    digits.profiles.all().delete()
    failed = ProfileJob.objects.create(variant=digits, device_type=KIND, state="failed")
    other = variant(application("other"), "other", 90, 5)
    jobs = [ProfileJob.objects.create(variant=other, device_type=KIND, state="done") for _ in range(5)]
    queued = ProfileJob.objects.create(variant=other, device_type=KIND, state="queued")
    retention.enforce()
    kept = {failed.pk, queued.pk, *(job.pk for job in jobs[-2:])}
    assert set(ProfileJob.objects.values_list("pk", flat=True)) == kept
    assert profiling.order_missing(KIND) == []


def session(**ends) -> str:
    store = SessionStore()
    store.create()
    Session.objects.filter(pk=store.session_key).update(expire_date=timezone.now() + timedelta(**ends))
    return store.session_key


def test_sessions_go_that_ended_long_ago_or_were_made_in_the_future():
    now, just_over = session(days=10), session(hours=-3)
    session(days=-30), session(days=14 * 365)
    retention.enforce()
    assert set(Session.objects.values_list("pk", flat=True)) == {now, just_over}


def test_strangers_go_that_no_longer_wait(later):
    Node.objects.create(name="asks", state=Member.State.PENDING, channel="c")
    Node.objects.create(name="left", state=Member.State.PENDING)
    Node.objects.create(name="off", state=Member.State.APPROVED)
    Node.objects.create(name="out", state=Member.State.REVOKED)
    retention.enforce()
    assert Node.objects.count() == 4
    later(retention.PENDING_S + 1)
    retention.enforce()
    assert set(Node.objects.values_list("name", flat=True)) == {"asks", "off", "out"}


def test_free_pages_are_given_back():
    with connection.cursor() as cursor:
        (mode,) = cursor.execute("PRAGMA auto_vacuum").fetchone()
        assert mode == 2
        cursor.execute("CREATE TABLE filling (data BLOB)")
        cursor.execute("INSERT INTO filling VALUES (zeroblob(4000000))")
        cursor.execute("DROP TABLE filling")
        (free,) = cursor.execute("PRAGMA freelist_count").fetchone()
        assert free > retention.PAGES
        retention.enforce()
        (left,) = cursor.execute("PRAGMA freelist_count").fetchone()
        assert left <= free - retention.PAGES


def test_a_step_of_the_upkeep_that_fails_keeps_no_other_from_running(digits, monkeypatch):
    ran = []
    monkeypatch.setattr(upkeep, "write_off_silent_devices", lambda: 1 / 0)
    monkeypatch.setattr(retention, "enforce", lambda: ran.append(1))
    tasks.tend()
    assert ran
