"""The wall clock is set while the control plane runs: only time is faked."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.utils import timezone

from appliance import celery
from appliance.celery import SteadyScheduler, app
from registry import clock
from registry.models import Device, Fault, Node, Profile, ProfileJob
from scheduler import presence, telemetry
from scheduler.control import leases, requests, upkeep
from scheduler.control.assemble import available_devices
from scheduler.members import faults
from scheduler.profiling import dispatch, results
from tests.control.world import application, arrive, listening, node, requested, seen, variant
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

STEPS = {"three hours back": -3 * 3600.0, "to 1970": -1.7e9, "to 2040": 4.4e8, "a day ahead": 86_400.0}


@pytest.fixture
def set_clock(monkeypatch):
    """Set the wall clock: ``set_clock(-3600)``."""

    def move(seconds: float) -> None:
        now = timezone.now
        monkeypatch.setattr(clock, "wall", lambda: time.time() + seconds)
        monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(seconds=seconds))

    return move


@pytest.mark.parametrize("step", STEPS)
def test_members_that_are_there_stay_there_and_silent_ones_are_noticed(step, set_clock, clean_redis):
    listening(clean_redis)
    here, gone = node("here", devices=1), node("gone", devices=1)
    set_clock(STEPS[step])
    Node.objects.filter(pk=gone.pk).update(seen_s=clock.steady() - upkeep.LOST_S - 1)
    here.refresh_from_db()
    gone.refresh_from_db()
    assert here.connected and not gone.connected
    assert [device.ref for device in available_devices()] == ["here/cpu0"]
    assert upkeep.write_off_silent_devices() == 1
    assert Device.objects.get(state="down").ref == "gone/cpu0"


def test_a_node_that_was_seen_while_a_query_waited_is_there(clean_redis):
    """Another process has stored a moment since this one looked, as it may where the database is busy."""
    listening(clean_redis)
    one = node("here", devices=1)
    Node.objects.update(seen_s=clock.steady() + 5)
    assert [device.ref for device in available_devices()] == ["here/cpu0"]
    assert upkeep.write_off_silent_devices() == 0
    one.refresh_from_db()
    assert one.channel


def test_nobody_counts_as_seen_by_an_earlier_boot(clean_redis):
    listening(clean_redis)
    one = node()
    Node.objects.update(seen_s=clock.steady() + 1000)
    one.refresh_from_db()
    assert not one.connected and available_devices() == []
    clean_redis.set(presence.SEEN, f"another-boot:{clock.steady()}")
    assert not presence.silence_counts()


@pytest.mark.parametrize("step", STEPS)
def test_demand_before_the_step_counts_on(step, set_clock, clean_redis):
    arrive("digits", 100)
    set_clock(STEPS[step])
    found = telemetry.sum_arrivals(telemetry.gateway_seconds(60))
    assert [counts for _, counts in found] == [{"digits": 100.0}] * 20
    assert all(-22 <= t - clock.wall() <= 0 for t, _ in found)
    arrive("digits", 100, seconds=1)
    assert len(telemetry.gateway_seconds(60)) == 21
    seconds = [second["t"] for second in telemetry.gateway_seconds(60)]
    assert seconds == sorted(seconds) and seconds[-1] <= clock.wall()


def test_a_stream_with_ids_of_the_future_is_read_and_bounded(clean_redis, monkeypatch):
    monkeypatch.setattr(telemetry, "KEEP_S", 60)
    ahead = int((time.time() + 3600) * 1000)
    clean_redis.xadd(telemetry.GATEWAY_STREAM, {"d": "{}", "at": f"old:{clock.steady()}"}, id=f"{ahead}-0")
    for _ in range(40):
        arrive("digits", 10, seconds=50)
    # Redis trims whole nodes of 100 entries.
    most = 60 * telemetry.MEMBERS
    assert most <= clean_redis.xlen(telemetry.GATEWAY_STREAM) <= most + 100
    assert most <= len(telemetry.gateway_seconds(60)) <= most + 100


def test_a_reading_of_the_clock_while_it_is_set_makes_no_second_of_another_day(set_clock, clean_redis):
    stats = control.GatewayStats(applications={}, ready=True)
    second = telemetry.gateway_second("g", stats, clock.wall())
    set_clock(-86_400.0)
    telemetry.record(telemetry.GATEWAY_STREAM, second)
    set_clock(86_400.0)
    telemetry.record(telemetry.GATEWAY_STREAM, second)
    assert [abs(data["t"] - clock.wall()) < 60 for data in telemetry.gateway_seconds(60)] == [True, True]


@pytest.mark.parametrize("step", STEPS)
def test_requests_and_pauses_end_by_themselves(step, set_clock, later, clean_redis):
    assert requests.request_plan("change") and not requests.request_plan("change")
    assert not requests.request_plan("overload")
    requested()
    assert not requests.request_plan("overload", at_most_every_s=3)
    set_clock(STEPS[step])
    later(4)
    assert requests.request_plan("overload", at_most_every_s=3)

    def rates() -> dict[str, float]:
        with leases.held(leases.PLAN):
            return requests.demand().rates

    requests.burst("digits", 50.0, 1)
    assert rates() == {"digits": 50.0}
    later(requests.OBSERVED_FOR_S + 1)
    assert rates() == {}
    # No key may end by Redis' own clock, which is the wall clock.
    assert [key for key in clean_redis.scan_iter("nereus:*") if clean_redis.ttl(key) != -1] == []


@pytest.mark.parametrize("step", STEPS)
def test_a_running_profile_job_is_judged_by_time_that_passed(step, set_clock, later):
    node()
    made = variant(application(), "new", 95, 5)
    made.profiles.all().delete()
    ProfileJob.objects.create(variant=made, device_type="cpu-test-1c")
    assert dispatch.dispatch() == 1
    ProfileJob.objects.update(heard=timezone.now())
    assert dispatch.requeue_silent() == 0
    set_clock(STEPS[step])
    assert dispatch.requeue_silent() == 0
    later(dispatch.SILENT_S + 1)
    assert dispatch.requeue_silent() == 1


def test_what_lies_in_the_future_holds_nothing_off(set_clock):
    box = node()
    made = variant(application(), "worn", 95, 5)
    Profile.objects.update(measured=timezone.now() + timedelta(hours=3))
    results.drifted(box, control.Drift(device="box/cpu0", variant=made.pk, ratio=1.8))
    assert ProfileJob.objects.get().reason == "drift"
    Fault.objects.bulk_create(
        Fault(variant=made, device="box/cpu0", device_type="cpu-test-1c", cause="crashed", at=at)
        for at in [timezone.now() + timedelta(hours=3)] * faults.CRASHES
    )
    faults.record(box, control.FaultReport(device="box/cpu0", variant=made.pk, cause="crashed", detail=""))
    assert not Profile.objects.exclude(blocked="").exists()


def test_beat_goes_by_the_monotonic_clock(monkeypatch):
    sent = []
    beat = SteadyScheduler(app, lazy=False, max_interval=300)

    def send(entry, producer=None):
        if not entry.name.startswith("heartbeat"):
            sent.append(entry.name)

    monkeypatch.setattr(beat, "apply_entry", send)
    monkeypatch.setattr(SteadyScheduler, "producer", None)
    now = time.monotonic()
    passed = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now + passed[0])
    assert beat.tick() == pytest.approx(min(10.0, settings.NEREUS.plan_period_s), abs=0.1)
    assert sorted(sent) == ["history", "plan", "promise", "tend"]
    monkeypatch.setattr(time, "time", lambda: 0.0)
    passed[0] = 10.5
    beat.tick()
    assert sorted(sent[4:]) == ["history", "tend"]
    monkeypatch.setattr(time, "time", lambda: 2.3e9)
    passed[0] = 3600.0
    beat.tick()
    assert sorted(sent[6:]) == ["history", "plan", "promise", "tend"], "what was missed is not made up for"


def test_beat_goes_on_while_redis_is_away(monkeypatch):
    tried = []

    def away(_) -> None:
        tried.append(time.monotonic())
        raise OSError("Connection refused")

    monkeypatch.setattr(SteadyScheduler, "producer", property(away))
    beat = SteadyScheduler(app, lazy=False, max_interval=300)
    assert beat.tick() > 0
    assert len(tried) == len(beat.schedule) > 1


def test_the_worker_that_is_never_busy_for_long_sends_periodic_tasks_by_it(monkeypatch):
    started = []
    embedded = SimpleNamespace(start=lambda: started.append("beat"))
    monkeypatch.setattr(celery, "EmbeddedService", lambda _, **options: started.append(options) or embedded)
    for queue in ("planning", "control", "simulation"):
        amqp = SimpleNamespace(queues=SimpleNamespace(consume_from={queue: None}))
        celery._send_periodic_tasks(SimpleNamespace(app=SimpleNamespace(amqp=amqp)))
    assert started == [{"thread": True, "scheduler_cls": SteadyScheduler}, "beat"]


def test_counts_that_cannot_be_are_left_out(clean_redis):
    for rows in (-(10**12), 10**18, 10**400, "many", None, float("nan")):
        entries = [
            {"t": 1, "gateway": "g", "applications": {"a": {"arrived_rows": rows}, "b": {"arrived_rows": 7}}},
            {"t": 2, "gateway": "g", "applications": {"a": {"arrived_rows": 5}}},
        ]
        assert telemetry.sum_arrivals(entries) == [(1, {"b": 7.0}), (2, {"a": 5.0})], rows
    assert not requests.burst("a", float("inf"), 1) and not requests.burst("a", -1.0, 1)
    for at in (float("nan"), float("inf"), -5.0, 1e300):
        second = telemetry.gateway_second("g", control.GatewayStats(applications={}, ready=True, at=at), 1e9)
        assert 1e9 - telemetry.KEEP_S <= second["t"] <= 1e9


def test_a_member_seen_long_ago_is_not_refused_its_name():
    node()
    Node.objects.update(**seen(ago=11))
    assert not Node.objects.get().fresh
