"""Parsers of what strangers send.

They raise documented errors only, within time and memory, however the bytes are cut up.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wide

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ["v2_json", "tensors", "http1", "http2", "control", "certificate_requests"]


def fuzz(target: str, runs: int, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", target, str(runs), str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=7200)
    assert ended.returncode == 0, f"{target}: {ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    done = re.search(r"Done (\d+) runs", ended.stderr)
    # libFuzzer may end a few inputs after its limit.
    assert done is not None and int(done[1]) >= runs, ended.stderr[-1000:]


@pytest.mark.parametrize("target", TARGETS)
def test_a_thousand_inputs_break_no_property(target, tmp_path):
    fuzz(target, 1000, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_a_hundred_thousand_inputs_break_no_property(target, tmp_path):
    fuzz(target, 100_000, tmp_path)


def test_a_broken_property_is_noticed(tmp_path):
    """A broken property is noticed.

    This is the same run with a target that has a fault: without it, the tests above would prove nothing.
    """
    with pytest.raises(AssertionError, match="a fault of the target's own"):
        fuzz("faulty", 1000, tmp_path)
