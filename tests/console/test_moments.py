"""Times of pages in the browser's zone, in a real browser that is elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from console.templatetags.console_format import moment, timed
from registry import models
from registry.audit import recording
from registry.audit.entries import AuditEntry
from tests.console.conftest import sign_in
from tests.running import eventually
from tools.chromium import InThread, expect

pytestmark = pytest.mark.wide
#: a browser that is elsewhere
TOKYO = pytest.mark.parametrize("page", [{"timezone_id": "Asia/Tokyo"}], indirect=True, ids=["tokyo"])

AT = datetime(2026, 3, 1, 20, 30, 5, tzinfo=UTC)


def test_a_moment_is_written_in_utc_and_sentences_keep_their_markup_out():
    assert moment(AT) == '<time datetime="2026-03-01T20:30:05Z" data-moment="full">2026-03-01 20:30:05 UTC</time>'
    assert moment(AT, "day").endswith(">2026-03-01 UTC</time>") and moment(None) == "–"
    assert timed("ends <b> at 2026-03-01 20:30 UTC, soon") == (
        'ends &lt;b&gt; at <time datetime="2026-03-01T20:30:00Z" data-moment="minutes">2026-03-01 20:30 UTC</time>, '
        "soon"
    )
    assert timed("no moment & none") == "no moment &amp; none"


@TOKYO
@pytest.mark.django_db(transaction=True)
def test_pages_show_the_browsers_zone_also_after_a_part_was_read_again(page):
    models.Node.objects.create(name="box", state="pending", last_seen=AT)
    page.goto("/nodes/")
    time = page.locator('[data-testid="node-box"] time').first
    expect(time).to_have_text("2026-03-02 05:30:05")
    expect(time).to_have_attribute("title", "2026-03-01 20:30:05 UTC")
    expect(time).to_have_attribute("datetime", "2026-03-01T20:30:05Z")
    again = "import('/static/nereus/refresh.js').then(({ refresh }) => refresh())"
    page.evaluate("document.getElementById('nodes').same = true")
    page.evaluate(again)
    # Nothing has changed, so the part is the same element.
    assert page.evaluate("document.getElementById('nodes').same")
    expect(time).to_have_text("2026-03-02 05:30:05")
    models.Node.objects.update(last_seen=AT.replace(minute=45))
    page.evaluate(again)
    expect(time).to_have_text("2026-03-02 05:45:05")
    expect(time).to_have_attribute("title", "2026-03-01 20:45:05 UTC")


@TOKYO
@pytest.mark.django_db(transaction=True)
def test_forms_take_times_of_the_browsers_zone(page):
    models.ApiKey.objects.create(name="door", prefix="abc", key_hash="0" * 64, expires=AT.replace(year=2096))
    sign_in(page, "operator")
    page.goto("/keys/?edit=door")
    field = page.locator('form[data-method="PATCH"] input[name="expires"]')
    expect(field).to_have_value("2096-03-02T05:30")
    expect(page.locator('form[data-method="PATCH"] label:has(input[name="expires"])')).to_contain_text("Asia/Tokyo")
    field.fill("2096-03-02T08:00")
    field.press("Enter")
    eventually(lambda: models.ApiKey.objects.get().expires.isoformat() == "2096-03-01T23:00:00+00:00")


def choose(page: InThread, **fields: str) -> None:
    form = page.get_by_test_id("audit-filter")
    form.evaluate(
        """(form, fields) => {
        for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
        form.requestSubmit();
    }""",
        fields,
    )


@TOKYO
@pytest.mark.django_db(transaction=True)
def test_the_audit_log_is_filtered_by_action_and_by_times_of_the_browsers_zone(page):
    sign_in(page, "operator")
    for action, name in (("created", "early"), ("deleted", "early"), ("deleted", "late")):
        recording.record(action, "device", name)
    AuditEntry.objects.filter(ref="early").update(at=AT)
    AuditEntry.objects.filter(ref="late").update(at=AT.replace(hour=23))
    page.goto("/audit/")
    shown = page.locator("[data-testid^=entry-] td:nth-child(3)")
    choose(page, action="deleted", kind="device")
    expect(shown).to_have_text(["deleted device late", "deleted device early"], use_inner_text=True)
    assert page.url.endswith("/audit/?action=deleted&kind=device"), "what is empty is left out"
    choose(page, since="2026-03-02T05:30", until="2026-03-02T08:00")
    expect(shown).to_have_text(["deleted device early"], use_inner_text=True)
    assert "since=2026-03-01T20%3A30%3A00.000Z" in page.url
    expect(page.get_by_test_id("audit-since")).to_have_value("2026-03-02T05:30")
    choose(page, action="created", since="", until="2026-03-02T05:30")
    expect(page.locator('[data-testid="audit-empty"] a')).to_be_visible()
    page.goto("/audit/?since=yesterday")
    expect(page.get_by_test_id("audit-fault")).to_contain_text("2030-01-31")
