"""Pages whose figures have stopped say so, in a real browser."""

import pytest

from tools.chromium import expect

pytestmark = pytest.mark.wide


@pytest.mark.django_db(transaction=True)
def test_a_page_without_its_connection_says_since_when_and_that_it_tries_again(page):
    # The server of these tests has no websockets.
    page.goto("/plans/")
    notice = page.get_by_test_id("connection")
    expect(notice).to_contain_text("The console cannot be reached since")
    expect(notice).to_contain_text("tried again by itself")


def test_a_session_that_ended_leads_to_the_sign_in_page_and_back(run_script):
    result = run_script(
        """
        document.body.insertAdjacentHTML("beforeend", '<div id="connection" hidden></div>');
        const { showConnection } = await import("/nereus/connection.js");
        const box = document.getElementById("connection"), states = [];
        const look = () => states.push([box.hidden, box.textContent.replace(/[0-9:]{8}/, "T"),
          box.querySelector("a")?.getAttribute("href") ?? null]);
        showConnection("reconnecting");
        look();
        showConnection("signed out");
        look();
        showConnection("live");
        look();
        return states;
        """
    )
    # A web process that restarts is back before the page says anything.
    assert result[0] == [True, "", None]
    text = "You are signed out. This page stands still since T. Sign in again"
    assert result[1] == [False, text, "/login/?next=%2Ftest.html"]
    assert result[2] == [True, "", None]
