"""Times of pages in the browser's zone, in a real browser that is elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from console.templatetags.console_format import moment, timed
from registry import models
from registry.audit import recording
from registry.audit.entries import AuditEntry
from tests.console.browsing import browser

pytestmark = pytest.mark.wide

__all__ = ["browser"]

AT = datetime(2026, 3, 1, 20, 30, 5, tzinfo=UTC)


def test_a_moment_is_written_in_utc_and_sentences_keep_their_markup_out():
    assert moment(AT) == '<time datetime="2026-03-01T20:30:05Z" data-moment="full">2026-03-01 20:30:05 UTC</time>'
    assert moment(AT, "day").endswith(">2026-03-01 UTC</time>") and moment(None) == "–"
    assert timed("ends <b> at 2026-03-01 20:30 UTC, soon") == (
        'ends &lt;b&gt; at <time datetime="2026-03-01T20:30:00Z" data-moment="minutes">2026-03-01 20:30 UTC</time>, '
        "soon"
    )
    assert timed("no moment & none") == "no moment &amp; none"


@pytest.fixture
def tokyo(browser):
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    yield browser
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


@pytest.mark.django_db(transaction=True)
def test_pages_show_the_browsers_zone_also_after_a_part_was_read_again(tokyo):
    browser = tokyo
    models.Node.objects.create(name="box", state="pending", last_seen=AT)
    browser.open("/nodes/")

    def seen() -> list[str]:
        time = browser.all('[data-testid="node-box"] time')[0]
        return [time.text, time.get_attribute("title"), time.get_attribute("datetime")]

    there = ["2026-03-02 05:30:05", "2026-03-01 20:30:05 UTC", "2026-03-01T20:30:05Z"]
    browser.wait(lambda: seen() == there)
    again = (
        "const done = arguments[0]; import('/static/nereus/refresh.js').then((m) => m.refresh()).then(() => done(true))"
    )
    browser.run("document.getElementById('nodes').kept = true")
    browser.driver.execute_async_script(again)
    # Nothing has changed, so the part is the same element.
    assert browser.run("return document.getElementById('nodes').kept") and seen() == there
    models.Node.objects.update(last_seen=AT.replace(minute=45))
    browser.driver.execute_async_script(again)
    assert seen()[:2] == ["2026-03-02 05:45:05", "2026-03-01 20:45:05 UTC"]
    assert browser.faults() == []


@pytest.mark.django_db(transaction=True)
def test_forms_take_times_of_the_browsers_zone(tokyo):
    browser = tokyo
    models.ApiKey.objects.create(name="door", prefix="abc", key_hash="0" * 64, expires=AT.replace(year=2096))
    browser.sign_in("operator")
    browser.open("/keys/?edit=door")
    field = 'form[data-method="PATCH"] input[name="expires"]'
    browser.wait(lambda: browser.run(f"return document.querySelector('{field}').value") == "2096-03-02T05:30")
    assert "Asia/Tokyo" in browser.run(f"return document.querySelector('{field}').closest('label').textContent")
    browser.run(f"const f = document.querySelector('{field}'); f.value = '2096-03-02T08:00'; f.form.requestSubmit()")
    browser.wait(lambda: models.ApiKey.objects.get().expires.isoformat() == "2096-03-01T23:00:00+00:00")


@pytest.mark.django_db(transaction=True)
def test_the_audit_log_is_filtered_by_action_and_by_times_of_the_browsers_zone(tokyo):
    browser = tokyo
    browser.sign_in("operator")
    for action, name in (("created", "early"), ("deleted", "early"), ("deleted", "late")):
        recording.record(action, "device", name)
    AuditEntry.objects.filter(ref="early").update(at=AT)
    AuditEntry.objects.filter(ref="late").update(at=AT.replace(hour=23))
    browser.open("/audit/")
    choose = (
        "const form = document.querySelector('[data-testid=audit-filter]');"
        "for (const [name, value] of Object.entries(arguments[0])) form.elements[name].value = value;"
        "form.requestSubmit()"
    )

    def shown() -> list[str]:
        found = "return [...document.querySelectorAll('[data-testid^=entry-] td:nth-child(3)')].map((c) => c.innerText)"
        return [" ".join(text.split()) for text in browser.run(found)]

    browser.run(choose, {"action": "deleted", "kind": "device"})
    browser.wait(lambda: shown() == ["deleted device late", "deleted device early"])
    assert browser.run("return location.search") == "?action=deleted&kind=device", "what is empty is left out"
    browser.run(choose, {"since": "2026-03-02T05:30", "until": "2026-03-02T08:00"})
    browser.wait(lambda: shown() == ["deleted device early"])
    assert "since=2026-03-01T20%3A30%3A00.000Z" in browser.run("return location.search")
    wait = "return document.querySelector('[data-testid=audit-since]').value"
    browser.wait(lambda: browser.run(wait) == "2026-03-02T05:30")
    browser.run(choose, {"action": "created", "since": "", "until": "2026-03-02T05:30"})
    browser.wait(lambda: browser.all('[data-testid="audit-empty"] a'))
    browser.open("/audit/?since=yesterday")
    assert "2030-01-31" in browser.one("audit-fault").text and browser.faults() == []
