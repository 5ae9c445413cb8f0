"""The benchmarks of whole appliances, run as short as can be.

Their figures agree with one another.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.running import ROOT

pytestmark = pytest.mark.long


def run(name: str, *options: str) -> str:
    command = [sys.executable, "-m", "benchmarks", name, *options]
    for _ in range(5):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
        # SLOs are fractions of a second: a machine that is busy just then has no figures to give.
        if "no answer while warming up" not in done.stderr:
            break
    assert done.returncode == 0 or "does not hold" in done.stdout, done.stderr
    return done.stdout


def rows(page: str, first: str) -> list[dict[str, str]]:
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip().replace(",", "") for cell in line.strip("|").split("|")])
    head, _, *body = table
    return [dict(zip(head, row, strict=True)) for row in body]


def test_the_parts_of_a_query_add_up_for_each_server_and_load():
    options = ["--trees", str(ROOT), str(ROOT), "--rounds", "1", "--seconds", "0.4", "--connections", "4"]
    page = run("query", *options, "--idle", "0", "60")
    found = rows(page, "connections")
    # Two checkouts of one name stay distinct.
    assert len({row["server"] for row in found}) == 2 and len(found) == 8
    for row in found:
        parts = [float(row[f"{part} µs"]) for part in ("gateway", "executor", "together")]
        assert parts[0] + parts[1] == pytest.approx(parts[2], rel=0.02)
        assert 0 < float(row["p50 ms"]) <= float(row["p99 ms"])
        assert 1 <= float(row["batch"]) <= 4
        assert row["busiest µs"] == row["gateway µs"]
    assert page.count(" to ") >= 16


def test_every_query_of_a_burst_is_accounted_for():
    page = run("pressure", "--kind", "small", "--seconds", "1")
    assert "- holds: 0 queries were lost or answered wrongly" in page
    counted, sent = re.search(r"- holds: the gateway counted (\d+) queries .*, clients sent (\d+)", page).groups()
    assert counted == sent
    assert "- holds: 0 refusals do not say when to retry" in page
    phases = {row[""]: row for row in rows(page, "")}
    # Late and refused ones of the quarters are those of the burst.
    for column in ("late", "refused", "other"):
        quarters = [int(phases[f"burst quarter {i}"][column]) for i in (1, 2, 3, 4)]
        assert sum(quarters) == int(phases["burst"][column])
