"""The benchmark of what encryption between boxes costs."""

from __future__ import annotations

import os
import re

import pytest

import benchmarks.__main__ as benchmarks

pytestmark = pytest.mark.wide


def test_each_kind_of_query_goes_both_ways(capsys):
    cores = os.sched_getaffinity(0)
    assert benchmarks.main(["transport", "--rounds", "1"]) == 0
    assert os.sched_getaffinity(0) == cores, "what runs after it in this process has them all"
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows] == [
        "| tiny, one by one", "| tiny, in batches of 8", "| 600 KB in", "| 600 KB in and out",
    ]  # fmt: skip
    assert all(re.fullmatch(r"[1-9]\d* us", cell) for row in rows for cell in row[1:3])
