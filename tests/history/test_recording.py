"""Each second gets from a real Redis into rows once, whatever is killed or emptied and however many record."""

from __future__ import annotations

import importlib
import threading

import pytest
from django.apps import apps as django_apps
from django.db import connection, transaction

from registry import clock
from scheduler import live, retention, tasks, telemetry
from scheduler.history import reading, recording
from scheduler.history.folding import TIERS, Bucket, coarsened
from scheduler.history.models import HistoryName, HistoryPosition, HistoryRow, Mark
from scheduler.history.packing import PackedRow, pack, totals, unpack

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def report(
    ago: float = 0.0,
    arrived: int = 5,
    gateway: str = "front",
    name: str = "digits",
    at: float | None = None,
    variant: str = "quick",
):
    now = clock.wall() if at is None else at
    counts = {
        "arrived": arrived,
        "in_time": arrived,
        "normalized_sum": 100.0 * arrived,
        "by_variant": {variant: arrived},
    }
    second = {"t": int(now - ago), "gateway": gateway, "serving": [name], "applications": {name: counts}}
    telemetry.record(telemetry.GATEWAY_STREAM, second)


def arrivals(resolution: int) -> int:
    rows = [bytes(data) for data in HistoryRow.objects.filter(resolution=resolution).values_list("total", flat=True)]
    return int(totals(rows)[:, 0].sum()) if rows else 0


def unpacked(row: HistoryRow, names: dict[int, str]) -> Bucket:
    return unpack(PackedRow(*(getattr(row, column) for column in PackedRow._fields)), names)


def everywhere() -> set[int]:
    return {arrivals(tier.resolution) for tier in TIERS}


def test_what_is_reported_is_in_all_tiers_once():
    for ago in range(30, 0, -1):
        report(ago)
    assert recording.record() == 30
    assert recording.record() == 0
    report()
    assert recording.record() == 1
    assert everywhere() == {31 * 5}
    row = HistoryRow.objects.filter(resolution=3600).last()
    names = dict(HistoryName.objects.values_list("pk", "name"))
    bucket = unpacked(row, names)
    assert bucket.variants["digits/quick"] == bucket.applications["digits"][0]


def test_a_report_that_comes_late_is_added_to_its_own_bucket():
    report(100, gateway="front")
    recording.record()
    before = HistoryRow.objects.filter(resolution=10).count()
    report(100, gateway="back", arrived=7)
    recording.record()
    assert everywhere() == {12}
    assert HistoryRow.objects.filter(resolution=10).count() in (before, before + 1)
    assert sum(HistoryRow.objects.filter(resolution=3600).values_list("seconds", flat=True)) <= 3


def test_what_is_not_stored_is_read_again(monkeypatch):
    report(5)

    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(type(HistoryRow.objects), "bulk_create", killed)
        recording.record()
    assert everywhere() == {0}
    recording.record()
    assert everywhere() == {5}


def test_two_that_record_at_once_count_each_second_once():
    for ago in range(60, 0, -1):
        report(ago)

    def run():
        try:
            for _ in range(3):
                recording.record()
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recording.record()
    assert everywhere() == {300}


def test_rows_of_earlier_tiers_are_folded_by_the_migration():
    for ago in range(900, 0, -10):
        report(ago)
    recording.record()
    total = arrivals(300)
    wanted = sorted(HistoryRow.objects.filter(resolution=300).values_list("start", "seconds", "total"))
    HistoryRow.objects.exclude(resolution=10).delete()
    # As they were: a row a minute, and others of six hours.
    migration = importlib.import_module("scheduler.history.migrations.0002_tiers")
    numbers = {(each.kind, each.name): each.pk for each in HistoryName.objects.all()}
    names = {number: name for (_, name), number in numbers.items()}
    fine = [(row.start, unpacked(row, names)) for row in HistoryRow.objects.all()]
    for resolution in (60, 21600):
        for start, bucket in coarsened(fine, resolution).items():
            packed = pack(bucket, lambda *key: numbers[key])
            HistoryRow.objects.create(resolution=resolution, start=start, **packed._asdict())
    migration.fold(django_apps, None)
    assert arrivals(300) == total > 0
    assert sorted(HistoryRow.objects.filter(resolution=300).values_list("start", "seconds", "total")) == wanted
    assert set(HistoryRow.objects.values_list("resolution", flat=True)) == {10, 300}


def test_a_position_that_another_process_moved_stores_nothing():
    report(5)
    HistoryPosition.objects.create(pk=1, folds=7)
    position = recording.Position()
    buckets = recording.fold(recording._read(position), position.counted)
    assert not recording._store(6, position, buckets)
    assert not HistoryRow.objects.exists()
    assert recording._store(7, position, buckets)
    assert everywhere() == {5}


def test_an_emptied_redis_starts_anew(clean_redis):
    report(5)
    recording.record()
    clean_redis.flushall()
    report(4, arrived=9)
    recording.record()
    assert everywhere() == {14}


def test_a_clock_that_steps_back_doubles_no_rate(monkeypatch):
    now, begin = clock.wall(), clock.steady()
    passed = 0.0
    monkeypatch.setattr(clock, "steady", lambda: begin + passed)
    ahead = 0.0
    monkeypatch.setattr(clock, "wall", lambda: now + passed + ahead)
    for step in range(40):
        if step == 20:
            ahead = -20.0
        passed = float(step)
        report()
    recording.record()
    assert everywhere() == {200}
    shown = reading.series(reading.Range(int(now) - 3600, int(now) + 60), 100)["demand"]
    rates = [rate for rate in shown if rate is not None]
    assert rates and max(rates) <= 5.0


def test_devices_and_their_sensors():
    second = {
        "t": int(clock.wall() - 5),
        "node": "box",
        "devices": [
            {"device": "box/cuda0", "busy": 0.5, "profiling": 0.0, "queued_rows": 2, "memory_bytes": 4096,
             "celsius": 61.5, "watts": 120.25},
            {"device": "box/cpu0", "busy": 1.0, "profiling": 0.0, "queued_rows": 0, "memory_bytes": 1024},
        ],
    }  # fmt: skip
    telemetry.record(telemetry.NODE_STREAM, second)
    recording.record()
    asked = reading.Range(int(clock.wall()) - 1000, int(clock.wall()) + 10)
    shown = {ref: reading.device(asked, 100, ref) for ref in ("box/cuda0", "box/cpu0", "unknown")}
    values = {
        ref: {name: [v for v in found[name] if v is not None] for name in ("busy", "celsius", "watts", "memory_bytes")}
        for ref, found in shown.items()
    }
    assert values["box/cuda0"] == {"busy": [50.0], "celsius": [61.5], "watts": [120.2], "memory_bytes": [4096.0]}
    assert values["box/cpu0"] == {"busy": [100.0], "celsius": [], "watts": [], "memory_bytes": [1024.0]}
    assert not any(values["unknown"].values())


def test_rows_are_bounded_by_their_number_and_names_by_use(monkeypatch):
    monkeypatch.setattr(retention, "EVERY_S", -1e9)
    monkeypatch.setattr(retention, "TIERS", tuple(tier._replace(keep=3) for tier in TIERS))
    monkeypatch.setattr(retention, "KEEP_MARKS", 2)
    rows = [HistoryRow(resolution=10, start=10 * i, seconds=1, total=b"", applications=b"", variants=b"", devices=b"")
            for i in range(8)]  # fmt: skip
    # One that was made while the clock was a century ahead is old all the same.
    rows[0].start = 10**10
    HistoryRow.objects.bulk_create(rows)
    for index in range(4):
        Mark.objects.create(kind="note", at="2026-01-01T00:00:00Z", text=str(index))
    # People's notes stay, however many faults there are.
    for index in range(4):
        Mark.objects.create(kind="lost", at="2026-01-01T00:00:00Z", text=f"fault {index}")
    HistoryName.objects.create(kind="a", name="gone", used=1)
    HistoryName.objects.create(kind="a", name="kept", used=retention.UNUSED_FOLDS)
    HistoryPosition.objects.create(pk=1, folds=retention.UNUSED_FOLDS + 2)
    retention.enforce()
    assert sorted(HistoryRow.objects.values_list("start", flat=True)) == [50, 60, 70]
    assert sorted(Mark.objects.values_list("text", flat=True)) == ["2", "3", "fault 2", "fault 3"]
    assert list(HistoryName.objects.values_list("name", flat=True)) == ["kept"]


def test_the_periodic_task_records():
    report(3)
    tasks.history()
    assert everywhere() == {5}
    with transaction.atomic():
        assert HistoryPosition.objects.get().folds == 1
    assert live.content() == HistoryPosition.objects.get().position["content"]
