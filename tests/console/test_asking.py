"""Questions and notes that a page sends, in a real browser."""

from __future__ import annotations

import pytest

from scheduler.control.planner import make_plan
from scheduler.history.models import Mark
from scheduler.models import WhatIf
from scheduler.promises import what_if
from tests.console.conftest import sign_in
from tests.control import world
from tests.running import eventually
from tools.chromium import InThread, expect

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def planned(clean_redis):
    world.listening(clean_redis)
    world.node()
    world.variant(world.application(), "quick", 90, 5)
    return make_plan("manual")


@pytest.fixture
def owner(page, planned):
    sign_in(page, "model owner")
    return page


def ask(page: InThread) -> WhatIf:
    page.goto("/what-if/")
    page.get_by_test_id("what-if-ask").click()
    expect(page.get_by_test_id("what-if-stage")).to_have_text("Queued: it waits for its plan …")
    return WhatIf.objects.first()


def test_a_link_asks_at_once_what_would_be_without_a_device(owner):
    owner.goto("/what-if/?remove=box/cpu1")
    expect(owner.get_by_test_id("what-if-question")).to_contain_text("without box/cpu1")
    assert [row.changes["remove_devices"] for row in WhatIf.objects.all()] == [["box/cpu1"]]


def test_a_viewer_who_follows_the_link_asks_nothing(page, planned):
    page.goto("/what-if/?remove=box/cpu1")
    expect(page.get_by_test_id("what-if-remove-box/cpu1")).to_be_checked()
    expect(page.get_by_test_id("what-if-ask")).to_be_disabled()
    assert not WhatIf.objects.exists()


def cancel_by_keys(page: InThread, row: WhatIf) -> None:
    button = page.get_by_test_id("what-if-cancel")
    button.focus()
    # It keeps the focus though each look draws it anew.
    button.evaluate("(button) => { button.dataset.old = 1; }")
    expect(page.locator("[data-testid=what-if-cancel]:not([data-old])")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("what-if-failed")).to_have_text("Cancelled by model-owner.")
    row.refresh_from_db()
    assert row.state == WhatIf.State.FAILED
    expect(button).to_have_count(0)
    expect(page.get_by_test_id("what-if-ask")).to_be_focused()


def test_a_what_if_that_waits_is_called_queued_and_cancelled_by_keys(owner):
    cancel_by_keys(owner, ask(owner))
    asked, stage = ask(owner), owner.get_by_test_id("what-if-stage")
    what_if.plan_waiting()
    expect(stage).to_contain_text("Queued: the plan is ready")
    WhatIf.objects.filter(pk=asked.pk).update(progress=what_if.TAKEN)
    expect(stage).to_have_text("Simulating what to expect …")
    cancel_by_keys(owner, asked)


def test_a_what_if_whose_plan_is_being_made_offers_no_cancel(owner):
    owner.goto("/what-if/")
    owner.get_by_test_id("what-if-ask").click()
    eventually(lambda: WhatIf.objects.update(state=WhatIf.State.PLANNING))
    expect(owner.get_by_test_id("what-if-stage")).to_have_text("Planning …")
    expect(owner.get_by_test_id("what-if-cancel")).to_have_count(0)


def test_a_button_that_is_pressed_for_long_is_clicked(owner):
    ask(owner)
    # Several looks fall between press and release; each would draw another button.
    owner.get_by_test_id("what-if-cancel").click(delay=1500)
    expect(owner.get_by_test_id("what-if-failed")).to_have_text("Cancelled by model-owner.")


def test_two_clicks_make_one_note(page):
    sign_in(page, "operator")
    page.goto("/")
    page.get_by_test_id("note-text").fill("a fan was <b>replaced</b>")
    page.get_by_test_id("note-submit").evaluate("(button) => { button.click(); button.click(); }")
    expect(page.get_by_test_id("marks")).to_contain_text("a fan was <b>replaced</b>")
    expect(page.get_by_test_id("note-submit")).to_be_enabled()
    assert [mark.text for mark in Mark.objects.filter(kind="note")] == ["a fan was <b>replaced</b>"]


def test_an_answer_has_a_headline_and_names_its_demand(run_script):
    result = run_script(
        """
        const { base, headline } = await import("/nereus/what_if.js");
        const plan = (accuracy, a, b) => ({ accuracy,
          applications: { a: { demand: 50, left_out: a }, b: { demand: 50, left_out: b } } });
        const measured = "2026-01-01T00:00:00+00:00";
        return [[plan(99.5, 0, 1e-9), plan(99.5, 0, 0)], [plan(99.5, 0, 0), plan(91, 2.5, 30)],
          [plan(90, 7, 0), plan(95, 0, 0)]].map(([present_plan, plan]) => headline({ present_plan, plan }))
          .concat(base({ measured, seconds: 60, items_per_s: { a: 20, b: 0 } }).replace(/before .*?:\\d\\d.*?: /, ""),
            base({ measured, seconds: 0, items_per_s: {} }).slice(-6));
        """
    )
    assert result == [
        "All demand is served; accuracy stays at 99.50%.",
        "32.5 of 100 items/s are left out (30.0 of b, 2.5 of a), none now; accuracy falls from 99.50% to 91.00%.",
        "All demand is served, 7.0 items/s of which are left out now; accuracy rises from 90.00% to 95.00%.",
        "Both columns are for the demand of the 60 s 20.0 items/s of a.",
        " none.",
    ]


def test_late_queries_are_described_by_where_their_time_went(run_script):
    result = run_script(
        """
        const { summary } = await import("/nereus/queries.js");
        const one = (outcome, queue_ms, model_ms) => ({ outcome, queue_ms, model_ms, network_ms: 1, batch_ms: 1 });
        const slowest = [one("late", 5, 300), one("late", 400, 50), one("late", 2, 300), one("in_time", 1, 80)];
        return [summary({ slowest, refused: [{}, {}] }), summary({ slowest: [one("in_time", 1, 2)], refused: [] })];
        """
    )
    assert result == [
        "Late or refused in the last hour, of the sampled queries: 2 lost time in the model, 1 waited for a "
        "device, 2 were refused.",
        "No sampled query was late or refused in the last hour.",
    ]
