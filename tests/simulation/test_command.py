"""``manage.py simulate`` from end to end, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .worlds import SCENARIO, files

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "data" / "proteus"


def run(tmp_path: Path, *args: str) -> subprocess.CompletedProcess:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("NEREUS_")}
    environ |= {"NEREUS_HOME": str(tmp_path / "nowhere" / "home")}
    command = [sys.executable, str(ROOT / "manage.py"), "simulate", *args]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)


def test_a_scenario_becomes_a_summary_a_table_and_a_page(tmp_path):
    ran = run(tmp_path, str(files(tmp_path)), "--strategy", "proteus", "--routing", "uniform", "--out", "results")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert (summary["strategy"], summary["batching"], summary["routing"]) == ("proteus", "proteus", "uniform")
    assert summary["queries"] == summary["in_time"] + summary["late"] + summary["dropped"] > 100
    assert {
        "violation_ratio", "effective_accuracy", "max_accuracy_drop_10s", "fluid_reference_accuracy", "wall_s",
        "solves", "max_solve_s",
    } <= summary.keys()  # fmt: skip
    assert (tmp_path / "results" / "per_second.csv").exists() and (tmp_path / "results" / "report.html").exists()
    assert f"{summary['queries']} queries" in ran.stdout
    assert not (tmp_path / "nowhere" / "home" / "db.sqlite3").exists()


def test_what_is_wrong_is_said_in_lines_and_not_as_a_traceback(tmp_path):
    path = files(tmp_path, "load_time_s = -1\nsed = 1\n" + SCENARIO)
    ran = run(tmp_path, str(path))
    assert ran.returncode == 1
    assert "load_time_s: must be" in ran.stderr and "sed: unknown key" in ran.stderr
    assert "Traceback" not in ran.stderr and not (tmp_path / "scenario").exists()


@pytest.mark.parametrize("option", ["strategy", "batching", "routing"])
def test_an_unknown_name_is_answered_with_the_known_ones(option, tmp_path):
    ran = run(tmp_path, str(files(tmp_path)), f"--{option}", "nexsus")
    assert ran.returncode == 1 and f"{option}: must be one of" in ran.stderr and "Traceback" not in ran.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("a file")
    ran = run(tmp_path, str(files(tmp_path)), "--strategy", "proteus", "--out", "taken")
    assert ran.returncode == 1 and "--out: taken cannot be written" in ran.stderr


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"the published profiles and traces are not at {PUBLISHED}")
def test_the_published_world_is_served_nearly_without_violations():
    from dataclasses import replace

    from scheduler.simulation import simulate
    from scheduler.simulation.scenario import parse

    scenario = parse(
        {
            "profiles": "profiles.csv",
            "trace": "traces/zipf_exponential.csv.gz",
            "batches": [1, 2, 4, 8],
            "devices": {"cpu": 20, "pascal": 10, "ampere": 10},
            "slo_ms": {"default": 300},
        },
        PUBLISHED,
    )
    a = scenario.arrivals
    part = replace(scenario, arrivals=replace(a, times=a.times[:6000], applications=a.applications[:6000]))
    summary = simulate(part, "proteus").summary
    assert summary["violation_ratio"] < 0.02
    # No plan under the SLO/2 rule can be more accurate than the fluid reference, but for what a short run leaves.
    assert 99 < summary["effective_accuracy"] < summary["fluid_reference_accuracy"] + 0.1
