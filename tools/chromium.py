"""Debian's chromium, driven by playwright, for tests and benchmarks.

Playwright's sync API leaves an event loop running in its thread, where neither Django's database nor another loop
works. So it has a thread of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

#: milliseconds after which what a page waits for has failed
LONGEST_MS = 300_000
SIZE = {"width": 1400, "height": 1000}


class InThread:
    """An object of playwright, whose attributes are read and called in playwright's thread, as are callbacks."""

    def __init__(self, thread: Executor, target: Any):
        self._thread, self._target = thread, target

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a function in the thread, with playwright's own objects, and wrap what it returns."""
        __tracebackhide__ = True
        own = [_unwrapped(each) for each in arguments]
        named = {name: _unwrapped(each) for name, each in options.items()}
        result = self._thread.submit(function, *own, **named).result()
        if isinstance(result, list):
            return [self._wrapped(each) for each in result]
        return self._wrapped(result)

    def __getattr__(self, name: str) -> Any:
        return self.call(getattr, self._target, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        return self.call(self._target, *arguments, **options)

    def _wrapped(self, result: Any) -> Any:
        own = callable(result) or type(result).__module__.startswith("playwright.")
        return InThread(self._thread, result) if own else result


def _unwrapped(value: Any) -> Any:
    return value._target if isinstance(value, InThread) else value


def expect(target: InThread) -> InThread:
    """Playwright's assertions about a page or locator, which wait until they hold."""
    from playwright.sync_api import expect

    return target.call(expect, target)


def installed() -> bool:
    return shutil.which("chromium") is not None


@contextmanager
def browser() -> Iterator[InThread]:
    """A headless chromium: playwright's ``Browser``."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=LONGEST_MS)
    with ThreadPoolExecutor(1, "playwright") as thread:
        playwright = InThread(thread, thread.submit(sync_playwright().start).result())
        try:
            options = {"executable_path": shutil.which("chromium"), "args": ["--disable-gpu", "--disable-quic"]}
            yield playwright.chromium.launch(**options)
        finally:
            # Ends the browser, too.
            playwright.stop()


@contextmanager
def console(address: str, secrets: dict[str, str]) -> Iterator[InThread]:
    """A page in a browser of its own, signed in at a console with an appliance's credentials."""
    with browser() as chromium, tab(chromium, base_url=address) as page:
        sign_in(page, secrets["console_user"], secrets["console_password"])
        page.locator("#live-state").wait_for()
        yield page


@contextmanager
def tab(browser: InThread, **options: Any) -> Iterator[InThread]:
    """A page in a context of its own, with the options of playwright's ``new_context``."""
    context = browser.new_context(viewport=SIZE, **options)
    context.set_default_timeout(LONGEST_MS)
    try:
        yield context.new_page()
    finally:
        context.close()


def sign_in(page: InThread, user: str, password: str) -> None:
    """Send the console's form, of the page's ``base_url``."""
    page.goto("/login/")
    page.get_by_test_id("login-username").fill(user)
    page.get_by_test_id("login-password").fill(password)
    page.get_by_test_id("login-submit").click()
