"""Debian's chromium for browser tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
)


def needed() -> None:
    """End the test where chromium is not installed: in CI as failed."""
    if not shutil.which("chromedriver") or not shutil.which("chromium"):
        message = "chromium and chromedriver are not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


@contextmanager
def running(folder: Path) -> Iterator[webdriver.Chrome]:
    needed()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
