"""A real browser that is signed in at a server of these processes.

Pages, REST, database and Redis are real. The websocket is not served.
"""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.accounts import account


class Browser:
    """One tab. ``server``: the address that pages are relative to."""

    def __init__(self, driver: webdriver.Chrome, server: str):
        self.driver, self.server = driver, server

    def sign_in(self, role: str) -> None:
        """Sign in as a new session of an account of that role.

        The sign-in form has tests of its own.
        """
        user = account(role.replace(" ", "-"), role)
        session = SessionStore()
        session["_auth_user_id"] = str(user.pk)
        session["_auth_user_backend"] = settings.AUTHENTICATION_BACKENDS[-1]
        session["_auth_user_hash"] = user.get_session_auth_hash()
        session.create()
        self.driver.get(self.server + "/login/")
        self.driver.delete_all_cookies()
        self.run("localStorage.clear(); sessionStorage.clear()")
        self.driver.add_cookie({"name": settings.SESSION_COOKIE_NAME, "value": session.session_key})

    def open(self, path: str) -> None:
        self.driver.get(self.server + path)

    def all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, testid: str):
        return self.driver.find_element(By.CSS_SELECTOR, f'[data-testid="{testid}"]')

    def click(self, testid: str) -> None:
        """Click in the middle of the window, away from the bars at its edges."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.one(testid))
        self.one(testid).click()

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, seconds: float = 120):
        waiting = WebDriverWait(self.driver, seconds, 0.1, ignored_exceptions=(Exception,))
        return waiting.until(lambda _: condition())

    def faults(self) -> list[str]:
        """Return errors of scripts and of the policy since the last call.

        The websocket's are not among them.
        """
        lines = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        return [line for line in lines if "/ws/" not in line]


def printed(driver: webdriver.Chrome, url: str) -> str:
    """Load a page whose script prints into its element ``out``.

    Returns:
        The text, once there is one.
    """
    driver.get(url)
    found = "return document.getElementById('out').textContent"
    try:
        return WebDriverWait(driver, 120, 0.02).until(lambda _: driver.execute_script(found))
    except TimeoutException:
        pytest.fail(f"nothing was printed: {driver.get_log('browser')}")


@pytest.fixture
def browser(chromium, live_server, clean_redis, monkeypatch):
    monkeypatch.setattr(settings, "SESSION_COOKIE_SECURE", False)
    opened = Browser(chromium, live_server.url)
    opened.sign_in("viewer")
    opened.faults()
    yield opened
    # Open pages would ask the next test's server.
    chromium.get("about:blank")
    ActionBuilder(chromium).clear_actions()
