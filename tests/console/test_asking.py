"""Questions and notes that a page sends, in a real browser."""

from __future__ import annotations

import contextlib

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from scheduler.control.planner import make_plan
from scheduler.history.models import Mark
from scheduler.models import WhatIf
from scheduler.promises import what_if
from tests.console.browsing import browser
from tests.console.test_scripts import run_script
from tests.control import world

__all__ = ["browser", "run_script"]
pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def planned(clean_redis):
    world.listening(clean_redis)
    world.node()
    world.variant(world.application(), "quick", 90, 5)
    return make_plan("manual")


def test_a_link_asks_at_once_what_would_be_without_a_device(browser, planned):
    browser.sign_in("model owner")
    browser.open("/what-if/?remove=box/cpu1")
    browser.wait(lambda: "without box/cpu1" in browser.one("what-if-question").text)
    assert [row.changes["remove_devices"] for row in WhatIf.objects.all()] == [["box/cpu1"]]
    assert browser.faults() == []


def test_a_viewer_who_follows_the_link_asks_nothing(browser, planned):
    browser.open("/what-if/?remove=box/cpu1")
    browser.wait(lambda: browser.one("what-if-remove-box/cpu1").is_selected())
    assert not browser.one("what-if-ask").is_enabled() and not WhatIf.objects.exists()
    assert browser.faults() == []


def test_a_what_if_that_waits_is_called_queued_and_cancelled_by_keys(browser, planned):
    browser.sign_in("model owner")
    browser.open("/what-if/")

    def ask() -> WhatIf:
        browser.click("what-if-ask")
        browser.wait(lambda: browser.one("what-if-stage").text == "Queued: it waits for its plan …")
        return WhatIf.objects.first()

    def focused() -> str:
        return browser.run("return document.activeElement.dataset.testid")

    def cancel(row: WhatIf) -> None:
        browser.run("document.querySelector('[data-testid=what-if-cancel]').focus()")
        # It keeps the focus though each look draws it anew.
        drawn = browser.one("what-if-cancel")
        browser.wait(lambda: browser.one("what-if-cancel") != drawn)
        assert focused() == "what-if-cancel"
        ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
        browser.wait(lambda: browser.one("what-if-failed").text == "Cancelled by model-owner.")
        row.refresh_from_db()
        assert row.state == WhatIf.State.FAILED and not browser.all("[data-testid=what-if-cancel]")
        assert focused() == "what-if-ask"

    cancel(ask())
    asked = ask()
    what_if.plan_waiting()
    browser.wait(lambda: browser.one("what-if-stage").text.startswith("Queued: the plan is ready"))
    WhatIf.objects.filter(pk=asked.pk).update(progress=what_if.TAKEN)
    browser.wait(lambda: browser.one("what-if-stage").text == "Simulating what to expect …")
    cancel(asked)
    assert browser.faults() == []


def test_a_what_if_whose_plan_is_being_made_offers_no_cancel(browser, planned):
    browser.sign_in("model owner")
    browser.open("/what-if/")
    browser.click("what-if-ask")
    browser.wait(lambda: WhatIf.objects.update(state=WhatIf.State.PLANNING))
    browser.wait(lambda: browser.one("what-if-stage").text == "Planning …")
    assert not browser.all("[data-testid=what-if-cancel]")


def test_a_button_that_is_pressed_for_long_is_clicked(browser, planned):
    browser.sign_in("model owner")
    browser.open("/what-if/")
    browser.click("what-if-ask")
    browser.wait(lambda: browser.all("[data-testid=what-if-cancel]"))
    # Several looks fall between press and release; each would draw another button, as one just before the press may.
    for _ in range(20):
        with contextlib.suppress(StaleElementReferenceException):
            ActionChains(browser.driver).click_and_hold(browser.one("what-if-cancel")).pause(1.5).release().perform()
            break
    browser.wait(lambda: browser.one("what-if-failed").text == "Cancelled by model-owner.")


def test_two_clicks_make_one_note(browser):
    browser.sign_in("operator")
    browser.open("/")
    browser.one("note-text").send_keys("a fan was <b>replaced</b>")
    browser.run("const b = document.querySelector('[data-testid=note-submit]'); b.click(); b.click()")
    browser.wait(lambda: "a fan was <b>replaced</b>" in browser.one("marks").text)
    browser.wait(lambda: browser.one("note-submit").is_enabled())
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
