"""History and marks over REST: ranges, resolutions, roles, what is refused."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from registry import clock, models
from registry.models import AuditEntry
from scheduler import telemetry
from scheduler.control import upkeep
from scheduler.history import figures, marking, reading, recording
from scheduler.history.folding import TIERS
from scheduler.history.models import Mark
from scheduler.models import Plan
from tests.accounts import signed_in
from tests.control.world import application, node, seen, variant
from tests.history.test_recording import report

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def viewer(clean_redis) -> Client:
    return signed_in("viewer")


def known(column: list) -> list:
    return [value for value in column if value is not None]


def test_a_short_range_is_of_seconds_and_a_longer_one_of_rows(viewer):
    for ago in (20, 19, 18):
        report(ago)
    recording.record()
    live = viewer.get("/api/v1/history/?seconds=300").json()
    assert (live["source"], live["step"]) == ("live", 1)
    assert known(live["demand"]) == [5.0, 5.0, 5.0]
    for seconds, resolution in ((3600, 10), (86400, 300), (86400 * 90, 3600), (reading.LONGEST_S, 86400)):
        rows = viewer.get(f"/api/v1/history/?seconds={seconds}").json()
        assert (rows["source"], rows["resolution"]) == ("database", resolution)
        assert rows["points"] <= 301 and rows["step"] % resolution == 0
        assert sum(known(rows["demand"])) > 0 and len(rows["demand"]) == rows["points"]


def test_figures_are_compressed_for_those_who_take_it(viewer):
    plain = viewer.get("/api/v1/history/?seconds=900&points=900")
    small = viewer.get("/api/v1/history/?seconds=900&points=900", headers={"accept-encoding": "gzip"})
    assert "Content-Encoding" not in plain and small["Content-Encoding"] == "gzip"
    assert len(small.content) < len(plain.content) / 4


def test_an_applications_history_has_its_variants_and_outlives_it(viewer):
    report(30, name="digits")
    report(30, name="faces", arrived=1)
    recording.record()
    for seconds in (600, 3600):
        shown = viewer.get(f"/api/v1/history/applications/digits/?seconds={seconds}").json()
        assert list(shown["by_variant"]) == ["quick"]
        assert known(shown["by_variant"]["quick"]) == known(shown["throughput"])
        listed = viewer.get(f"/api/v1/history/applications/?seconds={seconds}").json()["applications"]
        assert [(row["name"], row["over"]["violations"]) for row in listed] == [("digits", 0.0), ("faces", 0.0)]
    assert viewer.get("/api/v1/history/applications/unknown/").status_code == 404
    assert viewer.get("/api/v1/history/devices/box/unknown/").status_code == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("seconds=0", "seconds"),
        (f"seconds={reading.LONGEST_S + 1}", "seconds"),
        ("begin=20&end=10", "begin"),
        ("begin=1&end=2000000000", "begin"),
        ("points=1501", "points"),
        ("end=soon", "end"),
    ],
)
def test_a_range_that_cannot_be_is_refused_by_field(viewer, query, field):
    answer = viewer.get(f"/api/v1/history/?{query}")
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_notes_are_operators_and_are_audited(viewer):
    operator = signed_in("operator")
    note = {"text": "moved the rack"}
    refused = viewer.post("/api/v1/marks/", note, content_type="application/json")
    assert refused.status_code == 403
    made = operator.post("/api/v1/marks/", note, content_type="application/json")
    assert made.status_code == 201 and made.json()["by"] == "operator"
    assert [mark["text"] for mark in viewer.get("/api/v1/marks/").json()] == ["moved the rack"]
    earlier = {"text": "earlier", "at": int(clock.wall()) - 7200}
    assert operator.post("/api/v1/marks/", earlier, content_type="application/json").status_code == 201
    assert len(viewer.get("/api/v1/marks/?seconds=3600").json()) == 1
    other = Mark.objects.create(kind="plan", at=timezone.now(), text="a plan")
    assert operator.delete(f"/api/v1/marks/{other.pk}/").status_code == 404
    assert operator.delete(f"/api/v1/marks/{made.json()['id']}/").status_code == 204
    actions = AuditEntry.objects.filter(kind="note").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["created", "created", "deleted"]


def test_what_happens_is_marked_once(monkeypatch, clean_redis):
    owner = models.Application.objects.create(name="digits", slo_ms=50, signature={"inputs": [], "outputs": []})
    variant = models.Variant.objects.create(application=owner, name="quick", digest="a" * 64, size_bytes=1)
    variant.save()
    marking.planned(Plan(pk=3, trigger="burst", trigger_detail="", moves=2))
    marking.planned(Plan(pk=4, trigger="period", moves=0))
    marking.planned(Plan(pk=5, trigger="period", moves=2, changed=False))
    monkeypatch.setattr(marking, "silence_counts", lambda: True)
    node = models.Node.objects.create(name="box", state="approved", channel="c", **seen())
    models.Node.objects.create(name="new", state="approved", channel="")
    for channel in ("c", "", "", "c", "c", ""):
        models.Node.objects.filter(pk=node.pk).update(channel=channel)
        marking.watch_members()
    assert list(Mark.objects.order_by("pk").values_list("kind", "subject")) == [
        ("upload", "variant digits"),
        ("plan", "plan 3"),
        ("lost", "node box"),
        ("back", "node box"),
        ("lost", "node box"),
    ]
    assert upkeep.silence_counts() is False


def test_changes_that_steer_the_cluster_are_marks_with_who_made_them(viewer):
    operator, owner = signed_in("operator"), application("digits", slo_ms=300)
    variant(owner, "quick", 90, 5)
    node()
    json = {"content_type": "application/json"}
    with_stack = operator.patch("/api/v1/control/", {"stack": "proteus"}, **json)
    assert with_stack.status_code == 200
    operator.patch("/api/v1/control/", {"stack": ""}, **json)
    operator.patch("/api/v1/applications/digits/", {"slo_ms": 250}, **json)
    operator.patch("/api/v1/applications/digits/", {"weight": 2}, **json)
    operator.patch("/api/v1/applications/digits/variants/quick/", {"pinned": True}, **json)
    operator.post("/api/v1/nodes/box/cordon/?force=true", {"force": True}, **json)
    models.Node.objects.update(cordoned_at=None)
    found = [(mark["text"], mark["by"]) for mark in viewer.get("/api/v1/marks/").json() if mark["kind"] == "change"]
    assert found == [
        ("node box uncordoned", "system"),
        ("node box cordoned", "operator"),
        ("digits/quick pinned", "operator"),
        ("SLO of digits changed from 300 to 250 ms", "operator"),
        ("stack changed from proteus to default", "operator"),
        ("stack changed from default to proteus", "operator"),
    ]


def test_uploads_within_a_minute_are_one_mark_with_a_count(viewer):
    def application(name: str) -> models.Application:
        return models.Application.objects.create(name=name, slo_ms=50, signature={"inputs": [], "outputs": []})

    def upload(owner: models.Application, name: str) -> None:
        models.Variant.objects.create(application=owner, name=name, digest="a" * 64, size_bytes=1)

    digits = application("digits")
    for number in range(10):
        upload(digits, f"v{number}")
    (shown,) = viewer.get("/api/v1/marks/").json()
    assert (shown["count"], shown["link"]) == (10, "/applications/digits/")
    assert shown["text"] == "10 variants of digits uploaded, the latest digits/v9"
    upload(application("faces"), "quick")
    (shown,) = viewer.get("/api/v1/marks/").json()
    assert (shown["count"], shown["link"]) == (11, "/applications/")
    assert shown["text"] == "11 variants of several applications uploaded, the latest faces/quick"
    Mark.objects.update(at=timezone.now() - marking.TOGETHER)
    upload(digits, "later")
    texts = [mark["text"] for mark in viewer.get("/api/v1/marks/").json()]
    assert texts == ["digits/later uploaded", shown["text"]]


def test_tables_are_read_no_finer_than_their_points_need():
    now = 2_000_000_000
    hour, day = 3600, 86400
    ranges = {hour: 10, 6 * hour: 300, day: 300, 7 * day: 3600, 30 * day: 3600, 90 * day: 86400, 365 * day: 86400}
    for length, resolution in ranges.items():
        asked = reading.Range(now - length - 120, now - 120)
        assert reading.resolution(asked, now, reading.MOST_TABLES, 300 * reading.ENOUGH) == resolution
    # Where the tier that would do has forgotten that time, the next one answers.
    long_ago = reading.Range(now - 20 * day, now - 20 * day + 6 * hour)
    assert reading.resolution(long_ago, now, reading.MOST_TABLES, 300 * reading.ENOUGH) == 3600


def test_a_range_reads_a_bounded_number_of_rows():
    now = 2_000_000_000
    for length in (1, 60, 899, 901, 7200, 30_000, 100_000, 10**6, 10**7, reading.LONGEST_S):
        for age in (0, 10**5, 10**7):
            asked = reading.Range(now - age - length, now - age)
            for most in (reading.MOST_TOTALS, reading.MOST_TABLES):
                found = reading.resolution(asked, now, most)
                assert length / found <= max(most, telemetry.KEEP_S, TIERS[-1].keep)
            for least in (20, 100, 500):
                found = reading.resolution(asked, now, reading.MOST_TABLES, least)
                assert length / found <= max(reading.MOST_TABLES, telemetry.KEEP_S, TIERS[-1].keep)
            assert figures.grid(*asked, found, 300).points <= 301
