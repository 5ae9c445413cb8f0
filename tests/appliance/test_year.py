"""A whole appliance whose wall clock is moved through a year, and through boots in 1970 and 2040."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.running import ROOT, bare_environment

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


def year(*arguments: str) -> str:
    bare = bare_environment()
    command = [sys.executable, "-m", "benchmarks", "year", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


def test_days_pass_and_the_clock_is_set_wrongly_and_corrected():
    page = year("--days", "8", "--seconds", "3", "--within", "300")
    assert "8 days of 3 s" in page and ", 0 failed" in page


def test_a_year_passes():
    assert "365 days" in year()
