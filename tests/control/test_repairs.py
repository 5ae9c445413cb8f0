"""What needs a person: each check on real rows, a real Redis and a real disk; only time is faked."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone

from registry import clock, members, profiling, storage
from registry.access.roles import AccessRole
from registry.audit.recording import record
from registry.errors import Conflict
from registry.models import ApiKey, ApiToken, Device, Fault, Gateway, Node, Profile, ProfileJob, ValidationSet, Variant
from scheduler import tasks, telemetry, troubles
from scheduler.control import outcome, planner
from scheduler.members import devices, faults
from scheduler.models import KnownRepair, Plan
from scheduler.repairs import facts, known, listing, samples
from scheduler.repairs.checks import box as box_checks
from scheduler.repairs.checks import planning
from tests.accounts import account
from tests.control.world import KIND, application, node, seen, variant
from workers import confinement
from workers.certificates import OwnCertificate
from workers.protocol import control
from workers.protocol.specs import ApplicationStats, DeviceInfo, DeviceState

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that just started, on a box that isolates uploads, with planning under way."""
    complete = confinement.Isolation(landlock=7, seccomp=True)
    monkeypatch.setattr(confinement, "isolation", lambda: complete)
    monkeypatch.setattr(known, "_here", clock.Unchanged())
    monkeypatch.setattr(known, "_looked_at", None)
    monkeypatch.setattr(listing, "_shared", None)
    troubles._troubles.clear()
    outcome.succeeded()
    yield
    troubles._troubles.clear()


def store(made: Variant) -> None:
    """Put a file into the store that is as the variant's row says."""
    path = storage.path(made.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * made.size_bytes)


@pytest.fixture
def world():
    """Two equal devices up, one application with a small and a big variant, all files there."""
    owner = application()
    made = {}
    for name, accuracy, ms in (("small", 90, 1), ("big", 98, 20)):
        made[name] = variant(owner, name, accuracy, ms)
        made[name].digest = name.encode().hex().ljust(64, "0")
        made[name].save()
        store(made[name])
    yield {"node": node(), "application": owner, **made}
    for one in ("small", "big"):
        storage.path(made[one].digest).unlink(missing_ok=True)


def found() -> dict[str, object]:
    """The repairs that are shown now, by key."""
    return {repair.key: repair for repair in listing.current()}


def keep_alive() -> None:
    """Have members be seen now, and plans be tried, whatever the clock."""
    for kind in (Node, Gateway):
        kind.objects.exclude(channel="").update(seen_s=clock.steady())
    outcome.succeeded()


@pytest.fixture
def lasting(later):
    """Look, let seconds pass with members alive, and look again."""

    def wait(seconds: float) -> dict[str, object]:
        found()
        later(seconds)
        keep_alive()
        return found()

    return wait


def plan(**more) -> Plan:
    values = {"stack": "nereus", "status": "optimal", "accuracy": 98.0, "demand": 100.0, "served": 100.0}
    allocation = {"placements": [], "served": {"digits": 100.0}, "left_out": {}, **more.pop("allocation", {})}
    return Plan.objects.create(trigger="period", problem={}, wire={}, allocation=allocation, **{**values, **more})


def test_a_cluster_that_works_needs_nobody(world, lasting):
    plan()
    assert lasting(3600) == {}


# --- devices and members ---------------------------------------------------------------------------------------------


def report(box: Node, ref: str, state: str, detail: str = "") -> None:
    devices.report(box, [DeviceState(device=ref, state=state, detail=detail)])


def info(number: int) -> DeviceInfo:
    """A device of the box as its daemon reports it when it joins."""
    return DeviceInfo(
        id=f"box/cpu{number}",
        kind="cpu",
        type=KIND,
        description="",
        cores=(number,),
        gpu_index=None,
        memory_bytes=2**30,
        endpoint=f"unix:/run/box-cpu{number}.sock",
    )


def test_a_lost_device_says_since_when_and_what_it_costs(world, lasting):
    plan(accuracy=98.2)
    before = timezone.now()
    report(world["node"], "box/cpu1", "down", "exited with signal 9")
    plan(accuracy=93.1)
    assert "device:box/cpu1" not in found(), "an executor may be back at once"
    repair = lasting(11)["device:box/cpu1"]
    assert repair.severity == "error" and before <= repair.since <= timezone.now() and not repair.at_least
    assert repair.effect == ("50% of this appliance's capacity is lost. Planned accuracy is 93.1%, 98.2% before.")
    assert "exited with signal 9" in repair.action.text
    # What the node says further does not change since when it is lost.
    report(world["node"], "box/cpu1", "starting")
    assert lasting(61)["device:box/cpu1"].since == repair.since
    report(world["node"], "box/cpu1", "up")
    assert found() == {}


def test_a_device_of_another_type_counts_by_what_it_can_serve(world, lasting):
    slow = Device.objects.create(node=world["node"], ref="box/gpu0", kind="gpu", type="slow", state="up")
    profile = Profile.objects.create(variant=world["big"], device_type="slow", load_s=1, memory_bytes=1)
    profile.latencies.create(batch=1, p50_ms=8, p95_ms=8, mean_ms=8, samples=20)
    Profile.objects.filter(variant=world["big"], device_type=KIND).delete()
    report(world["node"], slow.ref, "down")
    repair = lasting(11)["device:box/gpu0"]
    # 125 items/s beside twice 1000.
    assert "6% of this appliance's capacity" in repair.effect
    assert "1 of 2 variants cannot run" in repair.effect


def test_a_device_that_its_node_has_no_more_is_down_until_it_is_forgotten(world, lasting):
    changed = Device.objects.get(ref="box/cpu0").changed
    devices.sync(world["node"], [info(0)])
    assert Device.objects.get(ref="box/cpu0").changed == changed
    repair = lasting(11)["device:box/cpu1"]
    assert "gone from its node" in repair.title and repair.action.label == "Forget"
    with pytest.raises(Conflict, match="still has it"):
        members.forget_device(Device.objects.get(ref="box/cpu0"))
    members.forget_device(Device.objects.get(ref="box/cpu1"))
    assert found() == {}


def test_a_device_that_comes_back_is_no_repair(world, lasting):
    devices.sync(world["node"], [])
    assert len(lasting(11)) == 2
    devices.sync(world["node"], [info(0), info(1)])
    for i in (0, 1):
        report(world["node"], f"box/cpu{i}", "up")
    assert found() == {}


def test_a_node_that_left_is_one_repair_with_all_its_devices(world, lasting, later):
    other = node("other", devices=2)
    Node.objects.filter(pk=other.pk).update(**seen(ago=0), channel="")
    last_seen = Node.objects.get(pk=other.pk).last_seen
    assert "node:other" not in found(), "it may be reconnecting"
    repair = lasting(31)["node:other"]
    assert repair.effect == "2 devices with 50% of this appliance's capacity." and repair.since == last_seen
    assert set(found()) == {"node:other"}
    assert (repair.action.method, repair.action.url) == ("DELETE", "/api/v1/nodes/other/")
    assert repair.action.permitted(AccessRole.OPERATOR) and not repair.action.permitted(AccessRole.OWNER)
    Node.objects.filter(pk=other.pk).update(**seen(), channel="c")
    assert found() == {}


def test_a_gateway_that_left(world, lasting):
    Gateway.objects.create(name="front", state="approved", channel="", address="http://10.0.0.5:8000")
    repair = lasting(31)["gateway:front"]
    assert repair.effect.startswith("Gateways without new plans and keys: 1 of 1.") and "10.0.0.5" in repair.effect


def test_a_member_that_waits_is_approved_by_one_button(world):
    stranger = Gateway.objects.create(name="shed", state="pending", channel="c")
    repair = found()["waiting:gateway:shed"]
    assert repair.since == stranger.created and repair.action.url == "/api/v1/gateways/shed/approve/"
    assert repair.severity == "warning"


def test_a_member_that_is_behind(world):
    since = timezone.now() - timedelta(minutes=5)
    Device.objects.update(plan_version=plan().pk)
    for _ in range(3):
        plan()
    Node.objects.update(behind_since=since)
    repair = found()["behind:node:box"]
    assert repair.since == since and repair.effect.startswith("It is 3 plans late. It still uses an older plan")


# --- plans and demand ------------------------------------------------------------------------------------------------


def arrive(arrived: int, refused: int, seconds: int = 60) -> None:
    now = clock.wall()
    for ago in range(seconds, 0, -1):
        counts = {"digits": ApplicationStats(arrived=arrived, dropped=refused)}
        stats = control.GatewayStats(applications=counts, ready=True)
        telemetry.record(telemetry.GATEWAY_STREAM, telemetry.gateway_second("g", stats, now - ago))


def test_demand_above_capacity_in_numbers_once_it_is_no_burst(world, lasting, monkeypatch):
    plan(allocation={"left_out": {"digits": 20.0}})
    assert found() == {}, "a burst"
    repair = lasting(61)["demand:digits"]
    assert repair.effect == "The plan leaves out 20 of 120 items/s even at the lowest accuracy."
    arrive(100, 14)
    assert "queries/s (14%) were refused in the last minute. The plan leaves" in found()["demand:digits"].effect
    plan()
    assert "demand:digits" in found(), "queries are still refused"
    telemetry.live.client().delete(telemetry.GATEWAY_STREAM)
    assert found() == {}


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
    since = outcome.latest().failing_since
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


def test_attempts_to_plan_that_nothing_is_known_of_count_after_a_while(world, later, clean_redis):
    clean_redis.delete(outcome.OUTCOME)
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


# --- variants --------------------------------------------------------------------------------------------------------


def test_a_profile_that_failed_has_its_error_and_a_button(world):
    third = variant(world["application"], "third", 99, 5, state=Variant.State.FAILED)
    third.digest = world["big"].digest
    third.save()
    third.profiles.all().delete()
    at = timezone.now() - timedelta(hours=2)
    ProfileJob.objects.create(variant=third, device_type=KIND, state="failed", detail="out of memory", finished=at)
    repair = found()[f"profile:digits/third:{KIND}"]
    assert repair.since == at and "out of memory" in repair.action.text and repair.severity == "error"
    assert repair.effect == "It cannot run on 2 of 2 devices. 1 of 3 variants of digits cannot run."
    assert repair.action.url == "/api/v1/applications/digits/variants/third/profile/"
    assert repair.action.permitted(AccessRole.OWNER) and not repair.action.permitted(AccessRole.VIEWER)
    profiling.order(third, "demand")
    assert f"profile:digits/third:{KIND}" not in found()


def test_a_profile_that_failed_after_others_leaves_the_old_one(world):
    ProfileJob.objects.create(variant=world["big"], device_type=KIND, state="failed", finished=timezone.now())
    repair = found()[f"profile:digits/big:{KIND}"]
    assert repair.severity == "warning" and "runs by its profile of" in repair.effect


def test_a_variant_that_waits_for_its_profile_for_too_long(world, lasting):
    Variant.objects.filter(name="big").update(state=Variant.State.PROFILING)
    Profile.objects.filter(variant=world["big"]).delete()
    assert found() == {}
    repair = lasting(601)["unprofiled:digits"]
    assert "1 of 2 variants of digits cannot run" in repair.effect and "2 devices up" in repair.effect


def test_a_variant_that_keeps_crashing_is_suspended_until_it_is_profiled_again(world):
    for _ in range(faults.CRASHES):
        crash = control.FaultReport(device="box/cpu0", variant=world["big"].pk, cause="crashed", detail="SIGSEGV")
        faults.record(world["node"], crash)
    repair = found()[f"blocked:digits/big:{KIND}"]
    assert repair.since == Fault.objects.order_by("id").first().at
    assert "crashed 5 times within 10 minutes" in repair.effect and "2 of 2 devices" in repair.effect
    assert "1 of 2 variants of digits cannot run" in repair.effect
    assert repair.action.url.endswith("/variants/big/profile/")
    Profile.objects.update(blocked="")
    assert found() == {}


def test_files_of_the_store_that_are_missing_or_damaged(world):
    storage.path(world["big"].digest).unlink()
    assert found()["files:digits"].effect.endswith("cannot load 1 of 2 variants: big is missing.")
    store(world["big"])
    assert found() == {}
    os.truncate(storage.path(world["big"].digest), 10)
    storage.path(world["small"].digest).unlink()
    repair = found()["files:digits"]
    assert "2 of 2 variants" in repair.effect and "10 bytes instead of 1000" in repair.effect
    store(world["big"])
    store(world["small"])
    ValidationSet.objects.create(application=world["application"], digest="e" * 64, size_bytes=5, metric="top1", rows=1)
    assert "0 of 2 variants: the validation set is missing" in found()["files:digits"].effect


# --- the box ---------------------------------------------------------------------------------------------------------


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
        assert not facts.read().redis
    finally:
        live.client.cache_clear()


def test_the_list_is_made_without_the_database(monkeypatch):
    def away():
        raise OperationalError("unable to open database file")

    monkeypatch.setattr(facts, "read", away)
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
def test_a_disk_that_is_full_soon(how):
    free, more, severity = DISKS[how]
    disk = facts.Disk(django_settings.NEREUS.home, free, 100 * 2**30, **more)
    repairs = list(box_checks.disk(facts.Facts(now=timezone.now(), disk=disk)))
    assert [repair.severity for repair in repairs] == ([severity] if severity else [])
    if how == "shrinks fast":
        assert "50.0 GiB of 100 GiB are left" in repairs[0].effect and "they last 24 hours" in repairs[0].effect


def test_the_disks_rate_is_measured_over_hours(later):
    for free in (1000 * 2**20, 940 * 2**20, 880 * 2**20):
        samples.sample_disk(free)
        samples.sample_disk(0)  # too soon after the last to count
        later(3600)
    assert samples.disk_rate() == pytest.approx(60 * 2**20 / 3600, rel=0.01)
    disk = facts.read().disk
    assert disk.total > disk.free > 0 and not disk.read_only and disk.shrinks == pytest.approx(17476, rel=0.01)


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
    """A certificate of an operator that ends after so many days."""

    def make(days: float) -> None:
        files = OwnCertificate(tmp_path / f"tls{days}")
        # One that is issued for ten years, so many days before its end.
        files.ensure(["box.example"])
        ends = facts.x509.load_pem_x509_certificate(files.server_file.read_bytes()).not_valid_after_utc
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


# --- since when, and ignoring ----------------------------------------------------------------------------------------


@pytest.fixture
def missing(world):
    """A repair whose beginning no row knows: a file that is missing."""
    storage.path(world["big"].digest).unlink()
    return "files:digits"


def restart(monkeypatch) -> None:
    """As another process sees it."""
    monkeypatch.setattr(known, "_here", clock.Unchanged())
    monkeypatch.setattr(known, "_looked_at", None)


def test_upkeep_remembers_since_when_and_whether_it_saw_it_begin(world, later, monkeypatch):
    listing.watch()
    later(10)
    storage.path(world["big"].digest).unlink()
    keep_alive()
    listing.watch()
    row = KnownRepair.objects.get()
    assert row.witnessed
    restart(monkeypatch)
    repair = found()["files:digits"]
    assert repair.since == row.since and not repair.at_least
    store(world["big"])
    listing.watch()
    assert not KnownRepair.objects.exists()


def test_what_upkeep_sees_at_its_first_look_may_have_begun_before(missing, monkeypatch):
    assert found()[missing].at_least
    listing.watch()
    since = KnownRepair.objects.get().since
    restart(monkeypatch)
    listing.watch()
    repair = found()[missing]
    assert repair.since == since and repair.at_least


def test_a_look_of_another_process_counts_towards_how_long_it_lasted(world, later, monkeypatch):
    report(world["node"], "box/cpu1", "down")
    listing.watch()
    restart(monkeypatch)
    assert found() == {}
    later(11)
    restart(monkeypatch)
    keep_alive()
    assert set(found()) == {"device:box/cpu1"}


def test_an_ignored_repair_stays_ignored_until_it_is_taken_back(missing, monkeypatch):
    listing.watch()
    known.ignore(found()[missing], "me")
    restart(monkeypatch)
    listing.watch()
    repair = found()[missing]
    assert repair.ignored_by == "me"
    assert listing.needing([repair], AccessRole.OPERATOR) == []
    known.notice(found()[missing])
    assert found()[missing].ignored_by == ""


def test_an_ignored_repair_that_gets_worse_is_shown():
    def disk(free: int):
        read = facts.Facts(now=timezone.now(), disk=facts.Disk(django_settings.NEREUS.home, free, 2**40))
        return known.shown(box_checks.disk(read))[0]

    known.ignore(disk(2**30), "me")
    assert disk(2**30 - 1).ignored_by == "me"
    assert disk(2**20).ignored_by == ""


def test_an_ignored_repair_that_comes_again_is_shown(missing):
    known.ignore(found()[missing], "me")
    assert found()[missing].ignored_by == "me"
    big = Variant.objects.get(name="big")
    store(big)
    listing.watch()
    storage.path(big.digest).unlink()
    assert found()[missing].ignored_by == ""


def test_nothing_is_taken_for_over_while_redis_is_away(missing):
    listing.watch()
    known.remember([], complete=False)
    assert KnownRepair.objects.exists()


def test_browsers_follow_what_the_list_says(missing, world):
    first = listing.summary(listing.current(), AccessRole.VIEWER)
    assert (first["count"], first["error"], first["warning"]) == (1, 1, 0)
    assert listing.summary(listing.current(), AccessRole.VIEWER) == first
    store(world["big"])
    second = listing.summary(listing.current(), AccessRole.VIEWER)
    assert second["count"] == 0 and second["version"] != first["version"]


def test_the_first_repairs_are_errors_and_the_oldest(world):
    Gateway.objects.create(name="shed", state="pending", channel="c")
    Node.objects.update(behind_since=datetime(2020, 1, 1, tzinfo=UTC))
    storage.path(world["big"].digest).unlink()
    assert [repair.key for repair in listing.current()] == [
        "behind:node:box",
        "files:digits",
        "waiting:gateway:shed",
    ]
