"""``make test`` fails for what fails twice, and never passes what did not run."""

import os
import subprocess
import sys

import pytest

from tests.running import ROOT

pytestmark = pytest.mark.wide

OPTIONS = "[pytest]\nmarkers =\n  wide:\n  long:\naddopts = -q -p xdist --max-worker-restart 1\n"
GOOD = """
import os, pytest
ALONE = "PYTEST_XDIST_WORKER" not in os.environ
def test_good(): pass
@pytest.mark.wide
def test_wide(): pass
"""
#: fail beside others only, in each way that a test can; "]@x::" is in names that are passed on
QUIET = """
@pytest.mark.parametrize("name", ["a b", "]@x::"])
def test_quiet(name): assert ALONE
@pytest.fixture
def last(): yield; assert ALONE
def test_last(last): pass
@pytest.mark.wide
def test_wide_quiet(): assert ALONE
"""
CRASH = "def test_crash(): ALONE or os._exit(3)\ndef test_behind_it(): pass\n"
TWICE = """
def test_twice(): assert not 1
def test_twice_in_setup(missing): pass
@pytest.mark.wide
def test_skipped_then(): ALONE and pytest.skip(); assert 0
"""


@pytest.mark.parametrize(
    ("text", "status", "end", "alone"),
    [
        (
            GOOD + QUIET + CRASH,
            0,
            "8 passed in",
            ["test_behind_it", "test_crash", "test_last", "test_quiet[]@x::]", "test_quiet[a b]", "test_wide_quiet"],
        ),
        (GOOD + QUIET + TWICE, 1, "3 failed, 6 passed in", ["test_last", "test_quiet", "test_quiet", "test_wide"]),
        (GOOD + "import missing", 1, "2 failed in", []),
        (GOOD.replace("@pytest.mark.wide", ""), 1, "2 passed in", []),
    ],
    ids=["quiet", "twice", "not imported", "nothing wide"],
)
def test_a_run_passes_if_each_test_passed_beside_others_or_alone(tmp_path, text, status, end, alone):
    (tmp_path / "pytest.ini").write_text(OPTIONS)
    (tmp_path / "test_it.py").write_text(text)
    # This test's own process may be one of several, which those of the run below are not to believe.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**mine, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, ""), done.stdout
    assert done.stdout.splitlines()[-1].startswith(end), done.stdout
    kept = tmp_path / "dist" / "passed-only-alone.txt"
    found = [line.split("::", 1)[1] for line in kept.read_text().splitlines()] if kept.exists() else []
    assert len(found) == len(alone) and all(map(str.startswith, found, alone)), done.stdout
