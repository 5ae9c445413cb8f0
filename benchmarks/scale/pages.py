"""Times of the console's pages in Debian's chromium.

It paints pages and measures how long that takes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: page: what must be shown before it counts as painted, and how many for each node or device
PAGES = {
    "overview": ("/", "#map [data-testid^='device-']"),
    "nodes": ("/nodes/", "#nodes [data-testid^='device-']"),
}
#: seconds after which a page is given up
LONGEST_S = 120.0


@contextmanager
def browser() -> Iterator:
    """A headless chromium; yields selenium's driver."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(prefix="scale-chromium-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", "--no-first-run"):
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={profile}")
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


def sign_in(driver, console: str, user: str, password: str) -> None:
    """Open a session."""
    driver.get(console + "/")
    for name, text in (("login-username", user), ("login-password", password)):
        driver.find_element("css selector", f'[data-testid="{name}"]').send_keys(text)
    driver.find_element("css selector", '[data-testid="login-submit"]').click()
    _until(driver, lambda: driver.find_elements("css selector", '[data-testid="kpi-demand"]'))


def paint(driver, console: str, page: str, devices: int) -> dict[str, float]:
    """Seconds until a page's first paint, and until it shows every device.

    Raises:
        TimeoutError: it does not within :data:`LONGEST_S`.
    """
    path, selector = PAGES[page]
    began = time.monotonic()
    driver.get(console + path)
    count = f"return document.querySelectorAll({selector!r}).length"
    _until(driver, lambda: driver.execute_script(count) >= devices)
    whole = time.monotonic() - began
    first = driver.execute_script(
        "const p = performance.getEntriesByName('first-contentful-paint')[0]; return p ? p.startTime : 0"
    )
    return {"first_s": first / 1000, "whole_s": whole}


def _until(driver, what) -> None:
    end = time.monotonic() + LONGEST_S
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(f"{driver.current_url}: not painted within {LONGEST_S:g} s")
        time.sleep(0.02)
