"""The control plane's own box, keys and tokens. All is real but time."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from cryptography import x509
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone

from appliance import redis_server
from registry import clock
from registry.access.roles import AccessRole
from registry.audit.recording import record
from registry.errors import Conflict
from registry.models import ApiKey, ApiToken
from scheduler import troubles
from scheduler.models import Plan
from scheduler.repairs import facts, known, listing, samples
from scheduler.repairs.checks import box as box_checks
from tests.accounts import account
from tests.repairs.looks import found, keep_alive, plan
from workers import confinement
from workers.trust.server import OwnCertificate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


def test_troubles_of_redis_and_database_are_said_at_least(world):
    troubles.occurred(ConnectionError("nobody there"))
    troubles.occurred(OperationalError("disk I/O error"))
    both = found()
    assert both["trouble:redis"].at_least and "nobody there" in both["trouble:redis"].effect
    assert "disk I/O error" in both["trouble:database"].effect
    with pytest.raises(Conflict):
        known.ignore(both["trouble:redis"], "me")
    troubles.over(troubles.REDIS)
    troubles.over(troubles.DATABASE)
    assert found() == {}


def test_the_list_is_made_without_redis(world, settings, monkeypatch):
    from scheduler import live

    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    live.client.cache_clear()
    try:
        assert list(found()) == ["trouble:redis"]
        read = facts.Facts()
        assert read.recent == {} and not read.redis
    finally:
        live.client.cache_clear()


def test_the_list_is_made_without_the_database(monkeypatch):
    def away(_):
        raise OperationalError("unable to open database file")

    monkeypatch.setattr(facts.Facts, "devices", property(away))
    (repair,) = listing.current()
    assert repair.key == "trouble:database" and "unable to open" in repair.effect


DISKS = {
    "room": (50 * 2**30, {}, None),
    "little": (2**30, {}, "warning"),
    "none": (2**27, {}, "error"),
    "read-only": (50 * 2**30, {"read_only": True}, "error"),
    "shrinks fast": (50 * 2**30, {"shrinks": 50 * 2**30 / 86_400}, "warning"),
    "shrinks slowly": (50 * 2**30, {"shrinks": 50 * 2**30 / 86_400 / 30}, None),
}


@pytest.mark.parametrize("how", DISKS)
def test_a_disk_that_is_full_soon(how, monkeypatch):
    free, more, severity = DISKS[how]
    monkeypatch.setattr(samples, "disk_rate", lambda: more.get("shrinks"))
    disk = box_checks.Disk(free, 100 * 2**30, "read_only" in more)
    monkeypatch.setattr(box_checks, "disk_below", lambda home: disk)
    repairs = list(box_checks.disk(facts.Facts()))
    assert [repair.severity for repair in repairs] == ([severity] if severity else [])
    if how == "shrinks fast":
        assert "50.0 GiB of 100 GiB are left" in repairs[0].effect and "they last 24 hours" in repairs[0].effect


def test_the_disks_rate_is_measured_over_a_day_and_not_known_before(later):
    for free in (3400 * 2**20, 2000 * 2**20, 520 * 2**20):
        assert samples.disk_rate() is None
        samples.sample_disk(free)
        samples.sample_disk(0)  # too soon after the last to count
        later(43_200)
    assert samples.disk_rate() == pytest.approx(2880 * 2**20 / 86_400, rel=0.01)
    disk = box_checks.disk_below(django_settings.NEREUS.home)
    assert disk.total > disk.free > 0 and not disk.read_only


def test_a_clock_that_was_set_is_shown_for_a_day(world, lasting, later, monkeypatch):
    later(samples.SETTLING_S)
    samples.watch_clock()
    wall = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: wall() - 3 * 3600)
    samples.watch_clock()
    keep_alive()
    assert "set back by 3 hours" in found()["clock"].effect
    samples.watch_clock()
    assert lasting(box_checks.CLOCK_SHOWN_S) == {}


def test_a_plan_of_the_future_shows_that_the_clock_is_behind(world):
    made = plan()
    Plan.objects.filter(pk=made.pk).update(created=timezone.now() + timedelta(days=3))
    assert "3 days in the future" in found()["clock"].effect


@pytest.fixture
def certificate(settings, tmp_path):
    def make(days: float) -> None:
        files = OwnCertificate(tmp_path / f"tls{days}")
        # One that is issued for ten years, so many days before its end.
        files.ensure(["box.example"])
        ends = x509.load_pem_x509_certificate(files.server_file.read_bytes()).not_valid_after_utc
        shift = ends - timezone.now() - timedelta(days=days)
        now = timezone.now
        settings.NEREUS = dataclasses.replace(
            django_settings.NEREUS,
            console=django_settings.NEREUS.console.__class__("0.0.0.0", 8080, True),
            tls_cert=files.server_file,
            tls_key=files.server_file,
        )
        patch.setattr(timezone, "now", lambda: now() + shift)

    with pytest.MonkeyPatch.context() as patch:
        yield make


@pytest.mark.parametrize(("days", "severity"), [(31, None), (29, "warning"), (-1, "error")])
def test_a_certificate_that_ends(certificate, days, severity):
    certificate(days)
    repairs = [repair for repair in listing.current() if repair.key == "certificate"]
    assert [repair.severity for repair in repairs] == ([severity] if severity else [])
    for repair in repairs:
        assert (timezone.now() - repair.since).days == 30 - days
    if days == 29:
        assert "ends in 29 days" in repairs[0].effect or "ends in 28 days" in repairs[0].effect


def test_a_certificate_that_cannot_be_read(certificate):
    certificate(100)
    django_settings.NEREUS.tls_cert.write_text("rubbish")
    repair = found()["certificate"]
    assert repair.severity == "error" and str(django_settings.NEREUS.tls_cert) in repair.effect


def test_uploads_that_are_not_isolated(world, monkeypatch):
    monkeypatch.setattr(confinement, "isolation", lambda: confinement.Isolation(landlock=0, seccomp=True))
    repair = found()["isolation"]
    assert "upload only what you trust" in repair.effect and repair.at_least


def test_a_backup_is_due_after_a_month(world):
    user = account("operator")
    User.objects.filter(pk=user.pk).update(date_joined=timezone.now() - timedelta(days=31))
    repair = found()["backup"]
    assert repair.title == "No backup was ever made" and "manage.py backup FILE" in repair.action.text
    assert (timezone.now() - repair.since).days == 1
    entry = record("made", "backup", "monday.tar")
    assert found() == {}
    type(entry).objects.filter(pk=entry.pk).update(at=timezone.now() - timedelta(days=40))
    assert found()["backup"].title == "No backup for 30 days"


def test_keys_and_tokens_that_expire_while_they_are_used_are_for_operators(world):
    soon = timezone.now() + timedelta(days=3, hours=1)
    user = account("operator")
    ApiKey.objects.create(name="line", prefix="x" * 8, key_hash="1" * 64, expires=soon, applications=["digits"])
    ApiKey.objects.create(name="later", prefix="x" * 8, key_hash="2" * 64, expires=soon + timedelta(days=30))
    ApiKey.objects.create(name="over", prefix="x" * 8, key_hash="3" * 64, expires=timezone.now())
    token = {"user": user, "role": "viewer", "prefix": "x" * 8, "expires": soon}
    ApiToken.objects.create(name="used", token_hash="4" * 64, last_used=timezone.now(), **token)
    ApiToken.objects.create(name="unused", token_hash="5" * 64, **token)
    repairs = found()
    assert set(repairs) == {"api_key:line", "api_token:used"}
    assert "Queries with it (digits) are refused in 3 days" in repairs["api_key:line"].effect
    assert repairs["api_key:line"].since == soon - timedelta(days=7)
    assert listing.needing(repairs.values(), AccessRole.OWNER) == []
    assert listing.summary(repairs.values(), AccessRole.VIEWER)["count"] == 0
    assert listing.summary(repairs.values(), AccessRole.OPERATOR)["warning"] == 2


def test_a_check_that_fails_leaves_the_others(world, monkeypatch):
    def broken(_):
        raise RuntimeError

    monkeypatch.setattr(listing, "CHECKS", (broken, box_checks.isolation))
    monkeypatch.setattr(confinement, "isolation", lambda: confinement.Isolation(landlock=0, seccomp=True))
    assert list(found()) == ["isolation"]


def test_a_redis_with_a_known_hole_is_a_repair(world, monkeypatch):
    old = redis_server.Program("/opt/redis-server", "Redis", (6, 2, 14))
    monkeypatch.setattr(redis_server, "chosen", lambda: old)
    repair = found()["redis"]
    assert "Redis 6.2.14, which has CVE-2025-49844" in repair.effect and "apt upgrade" in repair.action.text
